"""All commands with their one-line help."""

from __future__ import annotations

from hlomem.report.registry import REPORTS

COMMAND_GROUPS = {
    "Understand a program's memory": {
        "summary": "Show a program's memory in one screen.",
        "peak": "Show the buffers alive at the peak.",
        "explain": "Explain one buffer: its purpose, size, lifetime and location.",
        "html": "Write the memory report as one offline page.",
        "run": "Run a command with XLA's dumps enabled, and show what its programs need.",
        "oom": "Explain an out-of-memory message of XLA, from a log or pasted.",
        "shard": "Show how arrays are split over devices, what is on all of them, and why.",
        "diff": "Show what changed in memory between two compiles of one program.",
        "compile": "Compile a function for another machine, and show its memory.",
        "show": "Show a memory dump, or an HLO module, in one screen.",
    },
    "Understand a job's memory": {
        "timeline": "Show a device's memory over a run, and who held it at its peak.",
        "leaks": "Show what grew between device memory profiles, by line.",
        "job": "Forecast the memory of a whole job: does it fit, and in how small a pool.",
        "export": "Write a timeline, a forecast or a program's plan for Perfetto or pprof.",
    },
    "Use less": {
        "fit": "Find the largest batch that fits, by XLA's own plans.",
        "scale": "Plan a program at other sizes, from two compiles of it.",
        "improve": "Show what a better order of instructions would save, and write it.",
        "advise": "Show changes that would reduce memory, by how much, and at what cost.",
        **{name: report.help.partition("\n")[0] for name, report in REPORTS.items()},
    },
    "Look at many programs": {
        "scan": "Scan many programs into a store for `ask` and `html`.",
        "ask": "Query a store of `scan` about all its programs at once.",
    },
    "Set up": {
        "doctor": "Show installed packages, compile targets, and folders of dumps.",
        "completion": "Print the script that makes a shell complete commands and options.",
    },
    "Work on XLA": {
        "plan": "Plan a module's memory as XLA does, and write the same dumps.",
        "replan": "Plan a dump's program again, without its HLO module.",
        "verify": "Check that a memory plan is correct.",
        "pack": "Find the smallest heap for buffers with lifetimes, and prove it.",
        "link": "Link a program for a TPU with a smaller plan (an experiment).",
        "fmt": "Read files XLA wrote and print them back, byte for byte.",
    },
}
"""Commands by purpose; except for reports, each has a module of its name."""
COMMANDS = {name: help_ for group in COMMAND_GROUPS.values() for name, help_ in group.items()}
"""Every command with its one-line help, which is the first line of its own help."""
