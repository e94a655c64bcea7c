"""Holds `hlomem diff` and `hlomem advise` to pairs of programs of which the change is known.

    python -m tools.check_pairs diff|advice FOLDER [NAME...]

FOLDER is what `python -m tools.pairs.record` wrote. Prints a table in Markdown and a last line with
the share that was right; exits 0 whatever it is.

The rules. `diff`: the first cause has to be of the truth's kind (KINDS). Where the change reads
"8 became 16", its text has to have both numbers, in that order. Its bytes have to go the way XLA's
do, and to be between half and two and a half times as many: a donation saves the memory of results,
of which temporaries may have made use, so that less is won in the end.

`advise` on the program before: the first advice whose rule is the truth's (RULES) is compared with
the bytes that XLA saved. It is right if what it promises differs from them by no more than a tenth,
or if it promises "at most" and XLA saved no more than that and no less than half of it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlomem.base.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

KINDS = {"upcast": "dtype"}
"""The kind of a cause, where it is called otherwise than the truth."""
NUMBERED = frozenset({"batch", "sequence", "width", "layers"})
LEAST, MOST = 0.5, 2.5
"""A cause's bytes as a share of XLA's change."""
# Rules of advice by the truth's name for them.
RULES: dict[str, tuple[str, ...]] = {
    "donate": ("donate",),
    "checkpoint": ("checkpoint",),
    "offload": ("offload",),
    "logits": ("logits",),
    "carry": ("carry",),
    "padding": ("padding",),
    "narrow": ("narrow",),
    "layout": ("layout",),
    "constants": ("constants",),
}
TOLERANCE = 0.1
_BECAME = re.compile(r"(\d+)\D*became (\d+)")
_TIMEOUT_SECONDS = 300


def dump_of(folder: Path) -> Path:
    """The buffer assignment of the largest module of a folder, whose name commands take."""
    files = folder.glob("*after_optimizations-buffer-assignment.txt")
    return max(files, key=lambda path: path.stat().st_size)


def ask(*arguments: str | Path) -> Any:
    """What a command answers as JSON; its error's first line, as text, where it fails."""
    line = [sys.executable, "-m", "hlomem", *map(str, arguments), "--json"]
    done = subprocess.run(
        line, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS
    )
    if done.returncode:
        return (done.stderr.strip() or "no output").splitlines()[0]
    return json.loads(done.stdout)


def is_right(truth: dict[str, Any], cause: dict[str, Any]) -> bool:
    """True if a cause is what was changed, and has bytes that can be its."""
    if cause["kind"] != KINDS.get(truth["cause"], truth["cause"]):
        return False
    numbers = _BECAME.search(truth["change"]) if truth["cause"] in NUMBERED else None
    if numbers and not re.search(rf"\b{numbers[1]}\b.*\b{numbers[2]}\b", cause["text"]):
        return False
    share = cause["delta"] / truth["delta"] if truth["delta"] else 1
    return LEAST <= share <= MOST


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


def check_advice(folder: Path, truth: dict[str, Any]) -> tuple[bool, list[str]]:
    """One row: what the advice of the truth's rule promises, against what XLA saved."""
    answer = ask("advise", dump_of(folder / "before"))
    if isinstance(answer, str):
        return False, [answer[:110], "-", "-"]
    advice = [one for one in answer["advice"] if one["rule"] in RULES[truth["cause"]]]
    if not advice:
        others = ", ".join(one["rule"] for one in answer["advice"])
        return False, [f"(none; {others or 'nothing at all'})", "-", "-"]
    promised, saved = advice[0]["saves"], -truth["delta"]
    bound = advice[0]["method"] == "counted"
    kept = f"{saved / promised:.0%}" if promised else "-"
    near = abs(saved - promised) <= TOLERANCE * abs(saved)
    right = promised / 2 <= saved <= promised if bound else near
    word = f"{'at most ' * bound}{format_bytes(promised)}"
    return right, [advice[0]["title"][:110], word, kept]


HEADS = {
    "diff": ("first cause", "shown by buffers", "true cause is number"),
    "advice": ("advice", "promised", "kept"),
}


def rows_of(
    table: str, folder: Path, names: Sequence[str] = ()
) -> Iterator[tuple[bool, tuple[str, ...]]]:
    """Whether each pair is right, and the cells of its row."""
    check = {"diff": check_diff, "advice": check_advice}[table]
    for path in sorted(folder.glob("*/truth.json")):
        truth = json.loads(path.read_text())
        if names and truth["name"] not in names:
            continue
        right, cells = check(path.parent, truth)
        shown = (f"{truth['cause']}: {truth['change']}", format_bytes(truth["delta"]))
        yield right, (truth["name"], *shown, *cells, "yes" if right else "no")


def format_row(cells: Iterable[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def heads_of(table: str) -> tuple[str, ...]:
    """The heads of the columns."""
    return ("pair", "truth", "XLA's change", *HEADS[table], "right")


def main(table: str, folder: Path, names: list[str]) -> None:
    """Prints the table of all pairs of a folder, or of those named."""
    heads = heads_of(table)
    print(f"{format_row(heads)}\n|{'---|' * len(heads)}")
    marks = []
    for right, cells in rows_of(table, folder, names):
        marks.append(right)
        print(format_row(cells), flush=True)
    print(f"\n{sum(marks)} of {len(marks)} right")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
