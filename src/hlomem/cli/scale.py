"""`hlomem scale`: plans a program at other sizes, from two compiles of it."""

from __future__ import annotations

from typing import Any

import click

from hlomem.api.scale import scale
from hlomem.base.errors import EXIT_FINDING, EXIT_OK, CommandError
from hlomem.base.source import visible
from hlomem.cli.arguments import with_options
from hlomem.cli.options import BACKEND, CHIP, MODULE_ERA, REPORT
from hlomem.cli.progress import working
from hlomem.cli.screen import write
from hlomem.machines.capacity import parse_capacity
from hlomem.report.screens.scale_text import draw_scale

_MAX_DIGITS = 12


def _sizes(_context: click.Context, parameter: click.Parameter, text: str | None) -> list[int]:
    """The numbers of a list, `32,64`."""
    words = text.split(",") if text else []
    for word in words:
        if not (word.isascii() and word.isdecimal() and len(word) <= _MAX_DIGITS and int(word)):
            name = f"--{parameter.name}"
            raise CommandError(f"`{name}` has no size `{visible(word)}`: give numbers, as in 32,64")
    return [int(word) for word in words]


@click.command("scale")
@click.argument("one", metavar="ONE")
@click.argument("other", metavar="OTHER")
@click.option(
    "--sizes", required=True, callback=_sizes, metavar="A,B", help="The sizes of ONE and OTHER."
)
@click.option("--at", callback=_sizes, metavar="C,D,…", help="The sizes to plan.")
@click.option("--capacity", metavar="SIZE|CHIP", help="Find the largest size that fits this.")
@click.option("--step", type=click.IntRange(min=1), default=1, help="It is a multiple of this.")
@BACKEND
@CHIP
@MODULE_ERA
@with_options(REPORT)
def command(
    one: str,
    other: str,
    sizes: list[int],
    at: list[int],
    capacity: str | None,
    step: int,
    backend: str | None,
    chip: str | None,
    era: str | None,
    **shown: Any,
) -> int:
    """Plan a program at other sizes, from two compiles of it.

    ONE and OTHER are dumps with their HLO text next to them, or HLO modules, of one program
    compiled at two sizes of a batch or another dimension. They tell how every shape grows; --at
    names the sizes to plan. Nothing is compiled: a compiler may produce a different program at a
    third size. If the two are already different programs, the first differing line is shown. The
    exit code is 1 if no size fits --capacity.
    """
    if len(sizes) != 2:
        raise CommandError("`--sizes` needs the two sizes of ONE and OTHER, as in --sizes 32,64")
    with working(f"planning {one} at other sizes"):
        grown = scale(
            one,
            other,
            sizes=(sizes[0], sizes[1]),
            backend=backend or "",
            chip=chip or "",
            era=era or "",
        )
        report = grown.report(at, None if capacity is None else parse_capacity(capacity), step)
    write("scale", report, draw_scale, **shown)
    return EXIT_FINDING if report.largest == 0 else EXIT_OK
