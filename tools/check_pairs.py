"""Holds `hlomem diff` and `hlomem advise` to pairs of programs of which the change is known.

    python -m tools.check_pairs diff|advice FOLDER [NAME...]

FOLDER is what `python -m tools.pairs.record` wrote. Prints a table in Markdown and a last line with
the share that was right; exits 0 whatever it is.

The rules. `diff`: the text of the first cause has to match the pattern of the truth's kind of
change (PATTERNS); where the change reads "8 became 16", both numbers have to stand in it in that
order, or the pattern to match. `advise` on the program before: the first advice whose rule is the
truth's (RULES) is compared with the bytes that XLA saved. It is right if what it promises differs
from them by no more than a tenth, or if it promises "at most" and XLA saved no more than that and
no less than half of it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from hlomem.base.sizes import format_bytes

PATTERNS = {
    "donation": r"donat",
    "recomputation": r"recomput|checkpoint|remat",
    "offload": r"\bhost\b|offload",
    "dtype": r"\bf32\b.*\bbf16\b|\bbf16\b.*\bf32\b",
    "upcast": r"\bf32\b.*\bbf16\b|\bbf16\b.*\bf32\b|upcast",
    "batch": r"\bbatch\b",
    "sequence": r"\bsequence\b",
    "layers": r"\blayers?\b",
    "width": r"\bwidth\b",
    "sharding": r"shard|split over|partition|devices",
    "fusion": r"\bfus(ed|ion)",
    "layout": r"\blayout",
    "version": r"\bversion|jaxlib|libtpu",
    "loop": r"\bscan|\bloop|\bwhile\b|unroll",
}
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


def is_named(truth: dict[str, Any], text: str) -> bool:
    """True if a cause's text names what was changed."""
    numbers = _BECAME.search(truth["change"])
    if numbers and re.search(rf"\b{numbers[1]}\b.*\b{numbers[2]}\b", text):
        return True
    return re.search(PATTERNS[truth["cause"]], text, re.IGNORECASE) is not None


def check_diff(folder: Path, truth: dict[str, Any]) -> tuple[bool, list[str]]:
    """One row: the first cause, and where in the list the true one stands."""
    answer = ask("diff", dump_of(folder / "before"), dump_of(folder / "after"))
    if isinstance(answer, str):
        return False, [answer, "-"]
    texts = [cause["text"] for cause in answer["causes"]] or ["(none)"]
    right = [place for place, text in enumerate(texts, start=1) if is_named(truth, text)]
    first = f"{format_bytes(answer['causes'][0]['delta'])} {texts[0]}" if answer["causes"] else ""
    return 1 in right, [first[:110], str(right[0]) if right else "-"]


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
    "diff": ("first cause", "true cause is number"),
    "advice": ("advice", "promised", "kept"),
}


def main(table: str, folder: Path, names: list[str]) -> None:
    """Prints the table of all pairs of a folder, or of those named."""
    check = {"diff": check_diff, "advice": check_advice}[table]
    heads = ("pair", "truth", "XLA's change", *HEADS[table], "right")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    marks = []
    for path in sorted(folder.glob("*/truth.json")):
        truth = json.loads(path.read_text())
        if names and truth["name"] not in names:
            continue
        right, cells = check(path.parent, truth)
        marks.append(right)
        shown = (f"{truth['cause']}: {truth['change']}", format_bytes(truth["delta"]))
        row = (truth["name"], *shown, *cells, "yes" if right else "no")
        print(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |", flush=True)
    print(f"\n{sum(marks)} of {len(marks)} right")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
