"""Options shared by several commands."""

from __future__ import annotations

from hlomem.cli.parameters import option
from hlomem.machines.registry import PLATFORMS

WHICH_DUMP = option(
    "--module",
    metavar="NAME",
    help="Which program of several, by (part of its) name; by default the largest.",
)
HLO_TEXT = option("--hlo", metavar="FILE", help="The dump's HLO text; by default next to it.")
BACKEND = option("--backend", choices=PLATFORMS, help="By default inferred.")
CHIP = option("--chip", metavar="CHIP", help="The chip of the backend: v5e, h200, …")
MODULE_ERA = option("--era", metavar="ERA", help="Plan a MODULE as this XLA: K, jaxlib-0.7.2, …")
SPACE = option("--space", metavar="SPACE", help="Memory space: hbm, vmem, host, … or its color.")
REPORT = (option("--json", "as_json", is_flag=True, help="As JSON (schema hlomem/1)."),)
"""Options of every command that prints a report; `screen.write_report` takes their values."""
