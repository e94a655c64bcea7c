"""Prints screens and JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import EXIT_OK
from hlomem.base.source import visible
from hlomem.report.screens.text import Line, shorten_front, width, write_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from msgspec import Struct

    from hlomem.dump.dump import Dump


def write(
    kind: str,
    data: Struct,
    draw: Callable[[Any, int], list[Line]],
    dump: Dump | None = None,
    **shown: Any,
) -> int:
    """Print a report, drawn or as JSON: its fields, and its kind."""

    def content() -> dict[str, Any]:
        return {"kind": kind, **{name: getattr(data, name) for name in data.__struct_fields__}}

    return write_report(content, lambda: draw(data, width()), dump, **shown)


def write_report(
    content: Callable[[], Mapping[str, Any]],
    draw: Callable[[], list[Line]],
    dump: Dump | None = None,
    *,
    as_json: bool,
) -> int:
    """Print one of both; takes the values of the options in `REPORT`."""
    if as_json:
        from hlomem.report.json import encode  # noqa: PLC0415 - few ask for it

        sys.stdout.buffer.write(encode({**content()}) + b"\n")
    else:
        write_screen(draw(), dump)
    return EXIT_OK


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
