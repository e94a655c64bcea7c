"""All commands with their one-line help."""

from __future__ import annotations

from hlomem.report.registry import REPORTS

QUESTIONS = {
    "Does it fit?": {
        "compile": "Compile a function for another machine, and show its memory.",
        "fit": "Find what fits where, and the largest batch that does, by XLA's own plans.",
        "run": "Run a command with XLA's dumps enabled, and show what its programs need.",
    },
    "What takes the memory?": {
        "summary": "Show a program's memory in one screen.",
        "peak": "Show the buffers alive at the peak.",
        "explain": "Explain one buffer: its purpose, size, lifetime and location.",
        "html": "Write the memory report as one offline page.",
        "oom": "Explain an out-of-memory message of XLA, from a log or pasted.",
        "kernel": "Show what Pallas kernels use of VMEM, and which block sizes fit.",
        "shard": "Show how arrays are split over devices, what is on all of them, and why.",
    },
    "What changed?": {
        "diff": "Show what changed in memory between two compiles of one program.",
    },
    "What would help?": {
        "advise": "Show changes that would reduce memory, by how much, and at what cost.",
        "improve": "Show what a better order of instructions would save, and write it.",
    },
    "What does the whole job need?": {
        "job": "Forecast the memory of a whole job: does it fit, and in how small a pool.",
        "timeline": "Show a device's memory over a run, and who held it at its peak.",
        "leaks": "Show what grew between device memory profiles, by line.",
    },
    "Set up": {
        "doctor": "Show installed packages, compile targets, and folders of dumps.",
        "help": "Show the commands, or the help of one.",
    },
}
"""The commands that most people need, by the question each answers."""
MORE = {
    "Views of one program": {
        "show": "Show a memory dump, or an HLO module, in one screen.",
        **{name: report.help.partition("\n")[0] for name, report in REPORTS.items()},
        "scale": "Plan a program at other sizes, from two compiles of it.",
    },
    "Many programs": {
        "scan": "Scan many programs into a store for `ask` and `html`.",
        "ask": "Query a store of `scan` about all its programs at once.",
    },
    "Other tools": {
        "export": "Write a plan, a timeline or findings in the format of another tool.",
        "skill": "Show where the skill for coding agents is, or copy it.",
        "mcp": "Serve the main questions to agents by the Model Context Protocol.",
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
"""The others, which `hlomem help --all` lists; except for reports, each has its own module."""
COMMANDS = {
    name: help_ for group in (*QUESTIONS.values(), *MORE.values()) for name, help_ in group.items()
}
"""Every command with its one-line help, which is the first line of its own help."""
