"""Instruction text: every `from instruction:` line of every dump against the text we make.

    python tools/check_instruction_text.py [CORPUS]

For each value of each dump whose module is in the corpus, the instruction is looked up in
module.hlo and printed in the style of the dump's era; it must be what the dump says, byte for byte.
Prints the counts, and the differences by rule.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

from hlomem.hlo import TextStyle, format_instruction, parse

# Era B has no line end behind the instruction; the next value follows on the same line.
FROM_INSTRUCTION = re.compile(
    r"^ from instruction: ?(%([^ ]+) = .*?)(?:<[0-9]+ [^\n]*@[0-9]+>)?$", re.MULTILINE
)
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
    return "unexplained"


def check_entry(folder: Path, differences: Counter[str]) -> int:
    """Compare one dump with its module; returns how many values it has."""
    style = style_of(json.loads((folder / "meta.json").read_text(encoding="utf-8"))["era"])
    values = folder / "values.txt"
    dump = values if values.exists() else folder / "buffer-assignment.txt"
    module = parse((folder / "module.hlo").read_text(encoding="utf-8"))
    by_name = {instruction.name: instruction for instruction in module.iter_instructions()}
    count = 0
    for expected, name in FROM_INSTRUCTION.findall(dump.read_text(encoding="utf-8")):
        instruction = by_name.get(name)
        made = None if instruction is None else format_instruction(instruction, style)
        count += 1
        if made != expected:
            differences[rule_of(expected, made)] += 1
    return count


def main() -> int:
    """Check every entry of the corpus; 1 where a difference is not explained."""
    beside = Path(__file__).resolve().parent.parent.parent / "shared"
    corpus = Path(sys.argv[1]) if len(sys.argv) > 1 else beside
    folders = sorted(path.parent for path in corpus.glob("*/*/*/module.hlo"))
    differences: Counter[str] = Counter()
    count = sum(check_entry(folder, differences) for folder in folders)
    equal = count - differences.total()
    sys.stdout.write(f"{equal} of {count} instruction texts of {len(folders)} dumps are equal\n")
    for rule, number in differences.most_common():
        sys.stdout.write(f"{number:8} {rule}\n")
    return 1 if differences["unexplained"] else 0


if __name__ == "__main__":
    sys.exit(main())
