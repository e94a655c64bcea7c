"""Options that several commands have, each written once."""

from __future__ import annotations

import click

from hlomem.machines.registry import PLATFORMS

WHICH_DUMP = click.option(
    "--module",
    metavar="NAME",
    help="Which program of several, else the largest; a part of its name will do.",
)
HLO_TEXT = click.option(
    "--hlo", metavar="MODULE", help="The dump's HLO text; found beside it by name."
)
HLO_TEXT = click.option("--hlo", metavar="FILE", help="The dump's HLO text; else found beside it.")
BACKEND = click.option("--backend", type=click.Choice(PLATFORMS), help="Else inferred.")
CHIP = click.option("--chip", metavar="CHIP", help="The chip of the backend: v5e, h200, …")
MODULE_ERA = click.option(
    "--era", metavar="ERA", help="Plan a MODULE as this XLA: K, jaxlib-0.7.2, …"
)
SPACE = click.option(
    "--space", metavar="SPACE", help="Memory space: hbm, vmem, host, … or its color."
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="As JSON (schema hlomem/1).")
