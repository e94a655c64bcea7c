"""Holds `hlomem diff` to pairs of programs of which the change is known.

    python -m tools.check_causes FOLDER [NAME...]

FOLDER is what `python -m tools.pairs.record` wrote. Prints a table in Markdown and a last line with
the share that was right; exits 0 whatever it is.

The first cause has to be of the truth's kind (KINDS). Where the change reads "8 became 16", its
text has to have both numbers, in that order. Its bytes have to go the way XLA's do, and to be
between half and two and a half times as many: a donation saves the memory of results, of which
temporaries may have made use, so that less is won in the end.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlomem.base.sizes import format_bytes
from tools.pairs.truths import ask, dump_of, iter_truths
from tools.tables import head, row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KINDS = {"upcast": "dtype"}
"""The kind of a cause, where it is called otherwise than the truth."""
NUMBERED = frozenset({"batch", "sequence", "width", "layers", "length"})
MIN_SHARE, MAX_SHARE = 0.5, 2.5
"""A cause's bytes as a share of XLA's change."""
_BECAME = re.compile(r"(\d+)\D*became (\d+)")
HEADS = (
    "pair",
    "truth",
    "XLA's change",
    "first cause",
    "shown by buffers",
    "true cause is number",
    "right",
)


def is_right(truth: dict[str, Any], cause: dict[str, Any]) -> bool:
    """True if a cause is what was changed, and has bytes that can be its."""
    if cause["kind"] != KINDS.get(truth["cause"], truth["cause"]):
        return False
    numbers = _BECAME.search(truth["change"]) if truth["cause"] in NUMBERED else None
    if numbers and not re.search(rf"\b{numbers[1]}\b.*\b{numbers[2]}\b", cause["text"]):
        return False
    share = cause["delta"] / truth["delta"] if truth["delta"] else 1
    return MIN_SHARE <= share <= MAX_SHARE


def check_diff(folder: Path, truth: dict[str, Any]) -> tuple[bool, list[str]]:
    """One row: the first cause, and where in the list the true one stands."""
    answer = ask("diff", dump_of(folder / "before"), dump_of(folder / "after"))
    if isinstance(answer, str):
        return False, [answer, "-", "-"]
    causes = answer["causes"]
    right = [place for place, cause in enumerate(causes, start=1) if is_right(truth, cause)]
    if not causes:
        return False, ["(none)", "-", "-"]
    first = f"{format_bytes(causes[0]['delta'])} {causes[0]['text']}"
    shown = format_bytes(causes[0]["direct"])
    return 1 in right, [first, shown, str(right[0]) if right else "-"]


def rows_of(folder: Path, names: Sequence[str] = ()) -> Iterator[tuple[bool, tuple[str, ...]]]:
    """Whether each pair is right, and the cells of its row."""
    for truth, path in iter_truths(folder, list(names)):
        right, cells = check_diff(path, truth)
        shown = (f"{truth['cause']}: {truth['change']}", format_bytes(truth["delta"]))
        yield right, (truth["name"], *shown, *cells, "yes" if right else "no")


def main(folder: Path, names: list[str]) -> None:
    """Prints the table of all pairs of a folder, or of those named."""
    print("\n".join(head(HEADS)))
    marks = []
    for right, cells in rows_of(folder, names):
        marks.append(right)
        print(row(cells), flush=True)
    print(f"\n{sum(marks)} of {len(marks)} right")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
