"""Drawing for the terminal: plain lines of styled pieces, tables and bars that fit the width.

A line is a list of (text, style) pieces. Piped, it is printed as plain UTF-8 in as many columns as
COLUMNS says, by default 80; on a terminal rich colours it. Names from a dump pass through `visible`
before they get here.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TypeAlias

from hlomem.base.source import visible
from hlomem.report.data.names import short_line, short_operation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.text import Text

Line: TypeAlias = list[tuple[str, str]]

PIPED_WIDTH = 80
_NARROWEST = 60
_WIDEST = 120
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"


def width() -> int:
    """Columns to fill: the terminal's own (up to 120); piped, what COLUMNS says, or 80."""
    if not sys.stdout.isatty():
        asked = os.environ.get("COLUMNS", "")
        return max(_NARROWEST, int(asked)) if asked.isdecimal() and len(asked) < 5 else PIPED_WIDTH
    import shutil  # noqa: PLC0415 - which imports all kinds of archives

    return max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size().columns))


def bar(part: int, whole: int, columns: int) -> str:
    """A bar of `columns` cells, filled in eighths; what is not nothing shows at least one."""
    if whole <= 0 or part <= 0:
        return " " * columns
    eighths = max(1, min(8 * columns, round(8 * columns * part / whole)))
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(columns)


def curve(sizes: Iterable[int], highest: int) -> str:
    """One cell per size, the highest full."""
    levels = len(_LEVELS) - 1
    return "".join(_LEVELS[round(levels * size / highest) if highest else 0] for size in sizes)


def shorten(text: str, columns: int) -> str:
    """`text` in at most `columns` cells, its middle left out when it is longer."""
    if len(text) <= columns:
        return text
    if columns < 5:
        return text[:columns]
    tail = (columns - 1) // 2
    return f"{text[: columns - 1 - tail]}…{text[len(text) - tail :]}"


def shorten_front(text: str, columns: int) -> str:
    """`text` in at most `columns` cells, its beginning left out: of a path the end tells most."""
    return text if len(text) <= columns else f"…{text[len(text) - columns + 1 :]}"


def wrap(text: str, columns: int, first: str = "", rest: str = "") -> list[str]:
    """`text`, made visible, in lines of at most `columns`; longer words lose their middle.

    The first line begins with `first`, the others with `rest`, by default as many spaces.
    """
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
    """A share with one decimal; nothing of nothing is nothing."""
    return f"{100 * part / whole:.1f}%" if whole else "-"


_SPACES = {"default": "memory", "host": "host memory"}


def space_label(name: str) -> str:
    """A memory space as people write it: HBM, VMEM; a CPU's only one is memory."""
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
    """Lines without their styles."""
    return "".join("".join(piece for piece, _ in line).rstrip() + "\n" for line in lines)


def styled(lines: Iterable[Line]) -> Text:
    """Lines for rich to print."""
    from rich.text import Text  # noqa: PLC0415 - costs 0.1 s, and only a terminal needs it

    return Text("\n").join(Text.assemble(*line) for line in lines)


def write_lines(lines: Iterable[Line]) -> None:
    """Prints lines to standard output."""
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(plain(lines).encode("utf-8", "replace"))
        return
    from rich.console import Console  # noqa: PLC0415 - as in `styled`

    Console(highlight=False, soft_wrap=True).print(styled(lines))
