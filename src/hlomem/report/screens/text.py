"""Drawing for the terminal: lines of styled pieces, wrapped text and bars that fit the width.

A line is a list of (text, style) pieces; rich colours it on a terminal, a pipe gets plain UTF-8.
Names from a dump must pass through `visible` first.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TypeAlias

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.data.names import short_line, short_operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.text import Text

Line: TypeAlias = list[tuple[str, str]]

PIPED_WIDTH = 80
_NARROWEST = 60
_WIDEST = 120
_BAR = 20
_FIGURES = 26
"""Columns of a breakdown's row without name, bar and count."""
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"


def width() -> int:
    """Columns to fill: the terminal's, up to 120; for a pipe COLUMNS, or 80."""
    if not sys.stdout.isatty():
        asked = os.environ.get("COLUMNS", "")
        return max(_NARROWEST, int(asked)) if asked.isdecimal() and len(asked) < 5 else PIPED_WIDTH
    import shutil  # noqa: PLC0415 - it imports all archive formats

    return max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size().columns))


def bar(part: int, whole: int, columns: int) -> str:
    """A bar of `columns` cells, filled in eighths, at least one if `part` is positive."""
    if whole <= 0 or part <= 0:
        return " " * columns
    eighths = max(1, min(8 * columns, round(8 * columns * part / whole)))
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(columns)


def curve(sizes: Iterable[int], highest: int) -> str:
    """One cell per size, the highest full, as is what damaged input has above it."""
    levels = len(_LEVELS) - 1
    shares = (min(max(size, 0), highest) / highest if highest > 0 else 0.0 for size in sizes)
    return "".join(_LEVELS[round(levels * share)] for share in shares)


def shorten(text: str, columns: int) -> str:
    """`text` in at most `columns` cells, its middle elided if it is longer."""
    if len(text) <= columns:
        return text
    if columns < 5:
        return text[:columns]
    tail = (columns - 1) // 2
    return f"{text[: columns - 1 - tail]}…{text[len(text) - tail :]}"


def shorten_front(text: str, columns: int) -> str:
    """`text` in at most `columns` cells, its beginning elided if it is longer: for paths."""
    return text if len(text) <= columns else f"…{text[len(text) - columns + 1 :]}"


def wrapped(
    text: str, columns: int, first: str = "", style: str = "", rest: str = ""
) -> list[Line]:
    return [[(line, style)] for line in wrap(text, columns, first, rest)]


def wrap(text: str, columns: int, first: str = "", rest: str = "") -> list[str]:
    """`text`, visible, in lines of at most `columns`, the first with `first`, others `rest`."""
    rest = rest or " " * len(first)
    lines, line = [], first
    for word in visible(text).split():
        shown = shorten(word, columns - len(rest))
        if len(line) + len(shown) > columns and line.strip():
            lines.append(line.rstrip())
            line = rest
        line += shown + " "
    return [*lines, line.rstrip()]


def plural(count: int, noun: str) -> str:
    """`1 buffer`, `2 buffers`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def percent(part: int, whole: int) -> str:
    """A percentage with one decimal; `-` of nothing."""
    return f"{100 * part / whole:.1f}%" if whole else "-"


def breakdown(
    title: str, unit: str, rows: Sequence[tuple[str, int, str]], whole: int, width: int
) -> list[Line]:
    """Names, sizes, percentages, bars and counts below a title; `unit` is the title of counts."""
    columns = max((len(name) for name, _, _ in rows), default=0)
    cells = max(1, min(_BAR, width - columns - _FIGURES - len(unit)))
    lines: list[Line] = [[(f"{title:<{columns + cells + 26}}", "bold"), (unit, "dim")]]
    lines += [
        [
            (f"  {name:<{columns}}  ", ""),
            (f"{format_bytes(size):>10}", "cyan"),
            (f"  {percent(size, whole):>6}  ", ""),
            (bar(size, whole, cells), "green"),
            (f"  {count}", "dim"),
        ]
        for name, size, count in rows
    ]
    return lines


_SPACES = {"default": "memory", "host": "host memory"}


def space_label(name: str) -> str:
    """A memory space as users write it: HBM, VMEM; on CPU just memory."""
    return _SPACES.get(name, name.upper() if name.endswith("mem") or name == "hbm" else name)


def moment_words(
    step: int, steps: int, instruction: str | None, op_name: str | None, source: str | None
) -> str:
    """`instruction 984 of 2974, at embed.attend/dot_general (gpt.py:48)`."""
    if instruction is None:
        return f"the end, after instruction {steps}"
    what = f"at {short_operation(visible(op_name))}" if op_name else visible(instruction)
    where = f" ({short_line(visible(source))})" if source else ""
    return f"instruction {step} of {steps}, {what}{where}"


def plain(lines: Iterable[Line]) -> str:
    return "".join("".join(piece for piece, _ in line).rstrip() + "\n" for line in lines)


def styled(lines: Iterable[Line]) -> Text:
    from rich.text import Text  # noqa: PLC0415 - takes 0.1 s; only for terminals

    return Text("\n").join(Text.assemble(*line) for line in lines)


def write_lines(lines: Iterable[Line]) -> None:
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(plain(lines).encode("utf-8", "replace"))
        return
    from rich.console import Console  # noqa: PLC0415 - as in `styled`

    Console(highlight=False, soft_wrap=True).print(styled(lines))
