"""Holds `hlomem advise` to pairs of programs of which the change is known.

    python -m tools.check_promises FOLDER [NAME...]

FOLDER is what `python -m tools.pairs.record` wrote. Prints a table in Markdown and a last line with
the share that was kept; exits 0 whatever it is. For all pairs the table is written into
docs/advice.md, too.

`advise` on the program before: the advice is taken whose rule is
the truth's and that is about the same arguments, or the same policy. It is kept if what XLA saved
lies in the range that was promised, or no further than a twentieth outside, and is a saving.
Where nothing is promised, nothing can be kept: that is silence, told apart from what was missed,
a hundredth of the memory and more.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.sizes import format_bytes
from tools.tables import head, put, row

if TYPE_CHECKING:
    from collections.abc import Iterator

TOLERANCE = 0.05
WORTH = 0.01
DOCUMENT = Path(__file__).parent.parent / "docs" / "advice.md"
_POLICY = re.compile(r"policy=(\w+)")
_NAMES = re.compile(r'"(\w+)"')
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


def is_about(truth: dict[str, Any], advice: dict[str, Any]) -> bool:
    """True if an advice is to do what the truth says was done."""
    if advice["rule"] != truth["cause"]:
        return False
    if advice["rule"] == "donate":
        return set(advice["argument"].split(", ")) == set(_NAMES.findall(truth["change"]))
    if advice["rule"] == "checkpoint":
        policy = _POLICY.search(truth["change"])
        # Names in the program are not in what XLA is given: what has one is recomputed.
        is_by_name = policy is None or policy[1] == "save_only_these_names"
        wanted = "" if policy is None or is_by_name else policy[1]
        return bool(advice["argument"] == wanted)
    return True


class Promise(NamedTuple):
    """What became of the advice on one pair."""

    mark: str
    """`kept`, `broken`, `silent` or `missed`."""
    cells: list[str]
    width: float = 0.0
    """The most that was promised over the least."""


def check_advice(folder: Path, truth: dict[str, Any]) -> Promise:
    """One row: what the advice the truth has followed promises, against what XLA saved."""
    answer = ask("advise", dump_of(folder / "before"))
    if isinstance(answer, str):
        return Promise("broken", [answer[:110], "-"])
    found = [advice for advice in answer["advice"] if is_about(truth, advice)]
    saved = -truth["delta"]
    if not found:
        is_worth = saved > WORTH * truth["before"]
        return Promise("missed" if is_worth else "silent", ["nothing is promised", "-"])
    [advice] = found[:1]
    least, most = advice["least"], advice["most"]
    is_inside = least * (1 - TOLERANCE) <= saved <= most * (1 + TOLERANCE)
    text = f"{format_bytes(least)} to {format_bytes(most)}" if least < most else format_bytes(least)
    mark = "kept" if is_inside and saved > 0 else "broken"
    return Promise(mark, [text, advice["method"]], most / least)


def write_advice(folder: Path, names: list[str]) -> None:
    """Prints the table of promises, and writes that of all pairs into the documentation."""
    names_of_columns = ("pair", "change", "reserved", "promised", "method", "XLA saved", "")
    marks = ("---", "---", "---:", "---:", "---", "---:", "---")
    lines = head(names_of_columns, marks)
    promises = []
    for truth, path in iter_truths(folder, names):
        promise = check_advice(path, truth)
        promises.append(promise)
        sizes = format_bytes(truth["before"]), format_bytes(-truth["delta"])
        change = f"{truth['cause']}: `{truth['change']}`"
        cells = (truth["name"], change, sizes[0], *promise.cells, sizes[1], promise.mark)
        lines.append(row(cells))
        print(lines[-1], flush=True)
    lines += ["", *summed_up(promises)]
    print("\n".join(lines[-4:]))
    if not names:
        put(DOCUMENT, "promises", "\n".join(lines))


def summed_up(promises: list[Promise]) -> list[str]:
    """How many promises were kept, and how wide they are."""
    count = Counter(promise.mark for promise in promises)
    made = count["kept"] + count["broken"]
    widths = [promise.width for promise in promises if promise.width]
    wide = sum(widths) / max(1, len(widths))
    kept = f"{count['kept']} of {made} promises were kept."
    silent = count["missed"] + count["silent"]
    return [
        f"{kept} On average the most that is promised is {wide:.2f} times the least.",
        f"Nothing was promised for {silent} more pairs; XLA saved something in {count['missed']}.",
    ]


def iter_truths(folder: Path, names: list[str]) -> Iterator[tuple[dict[str, Any], Path]]:
    """The pairs of a folder, or those named."""
    for path in sorted(folder.glob("*/truth.json")):
        truth = json.loads(path.read_text())
        if not names or truth["name"] in names:
            yield truth, path.parent


if __name__ == "__main__":
    write_advice(Path(sys.argv[1]), sys.argv[2:])
