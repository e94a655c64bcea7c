"""Prints screens."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import EXIT_OK
from hlomem.base.source import visible
from hlomem.report.screens.text import Line, shorten_front, width, write_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Struct

    from hlomem.dump.dump import Dump


def write_screen(lines: list[Line], dump: Dump | None) -> None:
    """Print a screen; its title says if the dump is one of several."""
    if dump is not None and dump.chosen:
        said = f", {dump.chosen}; --module chooses another"
        title = "".join(piece for piece, _ in lines[0])
        is_title = title == visible(dump.title)
        if is_title and len(title) + len(said) <= width():
            lines = [[*lines[0], (said, "dim")], *lines[1:]]
        else:
            name = shorten_front(visible(dump.title), width() - len(said))
            lines = [[(name, "bold"), (said, "dim")], *(lines[1:] if is_title else lines)]
    write_lines(lines)


def write(
    kind: str,
    data: Struct,
    draw: Callable[[Any, int], list[Line]],
    as_json: bool,
    dump: Dump | None = None,
) -> int:
    """Print a report, drawn or as JSON."""
    if as_json:
        from hlomem.report.json import encode  # noqa: PLC0415 - few ask for it

        sys.stdout.buffer.write(encode({"kind": kind, **_fields(data)}) + b"\n")
    else:
        write_screen(draw(data, width()), dump)
    return EXIT_OK


def _fields(data: Struct) -> dict[str, Any]:
    return {field: getattr(data, field) for field in data.__struct_fields__}
