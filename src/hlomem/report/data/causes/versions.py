"""Another XLA: the same program, and yet other buffers.

Certain where the dumps are of different formats; likely another version, other flags or another
planner where they are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.dump.eras import describe
from hlomem.report.data.causes.cause import Finding, never

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.causes.comparison import Comparison


def find_versions(comparison: Comparison) -> Iterator[Finding]:
    """The one finding there is if the dumps are of different formats."""
    if comparison.has_other_era:
        eras = [describe(program.memory.dump.eras) for program in comparison.programs]
        same = comparison.is_same_program
        program = "the same program, compiled by" if same else "compiled by"
        text = f"{program} another version of XLA: {eras[0]} became {eras[1]}"
        yield Finding(kind="version", text=text, claims=never, is_certain=same)


def find_recompiled(comparison: Comparison) -> Iterator[Finding]:
    """The one finding there is if the programs are the same; asked where nothing else was found."""
    if comparison.is_same_program:
        text = "the same program, compiled differently: another version of XLA or other flags"
        yield Finding(kind="version", text=text, claims=never, is_certain=False)
