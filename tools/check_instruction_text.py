#!/usr/bin/env python3
"""Compare every `from instruction:` line of every dump with the text hlomem makes.

    python tools/check_instruction_text.py [--corpus ../shared] [--json FILE]

For each value of each dump whose module is in the corpus, the instruction is looked up in
module.hlo and printed in the style of the dump's era; it must be what the dump says, byte for byte.
Prints the counts, and the differences by rule. Exit code 1 if no rule explains one, or if there is
nothing to compare.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hlomem.hlo import TextStyle, format_instruction, parse
from tools.corpus import check_all, parse_arguments, write_counts

if TYPE_CHECKING:
    from collections.abc import Sequence

# Era B has no line end behind the instruction; the next value follows on the same line.
FROM_INSTRUCTION = re.compile(
    r"^ from instruction: ?(%([^ ]+) = .*?)(?:<[0-9]+ [^\n]*@[0-9]+>)?$", re.MULTILINE
)
UNEXPLAINED = "unexplained"
UNORDERED_MAP = '"tuning_knobs":{"'


def style_of(era: str) -> TextStyle:
    """How the dumps of an era print instructions."""
    return TextStyle(operand_shapes=era in "ABC", async_sugar=True, proto_order=era == "K")


def rule_of(expected: str, made: str | None) -> str:
    """Why a text differs."""
    if made is None:
        return "the module does not have the instruction"
    if UNORDERED_MAP in expected and sorted(expected) == sorted(made):
        return "entries of a proto map (tuning_knobs) come in hash order"
    return UNEXPLAINED


def check_entry(folder: Path) -> tuple[int, Counter[str]]:
    """Compare one dump with its module: how many values it has, and the differences by rule."""
    style = style_of(json.loads((folder / "meta.json").read_text(encoding="utf-8"))["era"])
    values = folder / "values.txt"
    dump = values if values.exists() else folder / "buffer-assignment.txt"
    module = parse((folder / "module.hlo").read_text(encoding="utf-8"))
    by_name = {instruction.name: instruction for instruction in module.iter_instructions()}
    differences: Counter[str] = Counter()
    count = 0
    for expected, name in FROM_INSTRUCTION.findall(dump.read_text(encoding="utf-8")):
        instruction = by_name.get(name)
        made = None if instruction is None else format_instruction(instruction, style)
        count += 1
        if made != expected:
            differences[rule_of(expected, made)] += 1
    return count, differences


def main(arguments: Sequence[str] | None = None) -> int:
    """Check every entry of the corpus; 1 where a difference is not explained."""
    options = parse_arguments(__doc__, arguments)
    folders = sorted(path.parent for path in options.corpus.glob("*/*/*/module.hlo"))
    results = check_all(check_entry, folders)
    count = sum(number for number, _ in results)
    differences = sum((found for _, found in results), Counter[str]())
    equal = count - differences.total()
    print(f"{equal} of {count} instruction texts of {len(folders)} dumps are equal")
    for rule, number in differences.most_common():
        print(f"{number:8} {rule}")
    write_counts(
        options.json,
        {"dumps": len(folders), "texts": count, "equal": equal, "rules": dict(differences)},
    )
    return 1 if differences[UNEXPLAINED] or not count else 0


if __name__ == "__main__":
    sys.exit(main())
