"""Another XLA or another backend: the same program, and yet other buffers.

Certain where the dumps are of different formats; likely another version, other flags or another
planner where they are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.machines.releases import LIBTPU
from hlomem.report.data.causes.cause import Finding, never

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.causes.comparison import Comparison
    from hlomem.report.data.causes.program import Program


def find_backends(comparison: Comparison) -> Iterator[Finding]:
    """The one finding there is if the programs are for different platforms."""
    old, new = (program.memory.machine.platform for program in comparison.programs)
    if old != new:
        text = f"compiled for {new} instead of {old}"
        yield Finding(kind="backend", text=text, claims=never, adds_operations=True)


def find_versions(comparison: Comparison) -> Iterator[Finding]:
    """The one finding there is if the dumps are of different formats."""
    if comparison.has_other_era:
        eras = [_releases(program) for program in comparison.programs]
        same = comparison.is_same_program
        program = "the same program, compiled by" if same else "compiled by"
        text = f"{program} another version of XLA: {eras[0]} became {eras[1]}"
        yield Finding(
            kind="version", text=text, claims=never, is_certain=same, adds_operations=True
        )


def _releases(program: Program) -> str:
    """The releases that write dumps like this."""
    eras = program.memory.dump.eras
    if program.memory.machine.package == LIBTPU and (libtpu := eras[-1].libtpu):
        return f"libtpu {' or '.join(libtpu)}"
    first, last = eras[0].jaxlib, eras[-1].jaxlib
    if first is None or last is None:
        return "an unknown release"
    return f"jaxlib {first[0]} to {last[1]}" if first[0] != last[1] else f"jaxlib {first[0]}"


def find_recompiled(comparison: Comparison) -> Iterator[Finding]:
    """The one finding there is if the programs are the same; asked where nothing else was found."""
    if not comparison.is_same_program:
        return
    if not comparison.is_fused_alike:
        text = "the same operations, fused differently: a barrier, other flags, another XLA"
        yield Finding(kind="fusion", text=text, claims=never, is_certain=False)
    else:
        text = "the same program, compiled differently: another version of XLA or other flags"
        yield Finding(kind="version", text=text, claims=never, is_certain=False)
