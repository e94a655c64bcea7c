"""The commands there are, with their one-line help."""

from __future__ import annotations

from hlomem.report.registry import REPORTS

COMMAND_GROUPS = {
    "Understand a program's memory": {
        "summary": "Show in one screen what a program's memory is for.",
        "peak": "Show who is alive when the program needs most memory.",
        "explain": "Explain one buffer: why it exists, its size, its life, its place.",
        "html": "Write the memory report as one page that opens offline.",
        "run": "Run a command with XLA's dumps on, and show what its programs need.",
        "oom": "Explain an out-of-memory message of XLA, from a log or pasted.",
        "diff": "Show what changed in memory between two compiles of one program.",
        "compile": "Compile a function for a machine that is not here, and show its memory.",
        "show": "Show a memory dump, or an HLO module, in one screen.",
    },
    "Use less": {
        "fit": "Find the largest batch that fits, by XLA's own plans.",
        "scale": "Plan a program at sizes nobody compiled, from two compiles of it.",
        "improve": "Show what a better order of instructions would save, and write it.",
        "advise": "Show what would make a program need less memory, by how much, and at what cost.",
        **{name: report.help.partition("\n")[0] for name, report in REPORTS.items()},
    },
    "Look at many programs": {
        "scan": "Scan many programs into a store, which `ask` and `html` read.",
        "ask": "Ask a store of `scan` about all its programs at once.",
    },
    "Set up": {
        "doctor": "Show what is installed here, what can be compiled for, and where dumps are.",
        "completion": "Print the script that makes a shell complete commands and options.",
    },
    "Work on XLA": {
        "plan": "Plan a module's memory as XLA does, and write the same dumps.",
        "replan": "Plan a dump's program anew, without its HLO module.",
        "verify": "Check that a memory plan is right, XLA's or ours.",
        "pack": "Find the smallest heap for buffers that live at times, and prove it.",
        "fmt": "Read files XLA wrote and print them back, byte for byte.",
    },
}
"""Commands by what people want; those that are no report have a module of their name."""
COMMANDS = {name: help_ for group in COMMAND_GROUPS.values() for name, help_ in group.items()}
"""Every command with its one-line help, which is also the first line of its own."""
