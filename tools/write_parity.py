"""Runs every check over the corpus and writes docs/parity.md: `python -m tools.write_parity`.

The words of the page are here, its figures come from the checks.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools import check_corpus, check_plans
from tools.corpus import parse_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).parent.parent / "docs" / "parity.md"
VERDICTS = (
    "offsets",
    "buffer-assignment.txt",
    "values.txt",
    "live-range.txt",
    "memory-usage-report.txt",
)
REPLAN_STAGES = ("values", "live ranges", "assignment", "report", "not planned")

TEMPLATE = """\
# Parity with XLA

Measured by `make parity` over a corpus of real dumps: 82 JAX programs and 21 production modules on
CPU (19 jaxlib versions), GPU (H200) and TPU (v4 to 7x, 7 libtpu versions). This page is written by
that command.

## Reading

| what | files or lines | equal |
|---|---|---|
| dump files read and printed back, byte for byte | {dumps[total]:,} | {dumps[equal]:,} |
| HLO modules parsed and printed back, byte for byte | {modules[total]:,} | {modules[equal]:,} |
| bytes of a value computed from its printed shape | {sizes[total]:,} | {sizes[equal]:,} |
| instruction text of dumps made from the module | {texts[total]:,} | {texts[equal]:,} |

{text_rules}

## Planning

Every module planned from its text and compared with what that release of XLA wrote, byte for byte;
but the lines inside a value's lists of positions and uses are sorted first, on both sides (below).
In the first column, every value lies in an allocation of XLA's kind and size at XLA's offset,
whatever its id.

| group | offsets | allocations, or all in one file | values | live ranges | usage report |
|---|---|---|---|---|---|
{plan_rows}

### Why some differ

- **Lists of positions and uses** are compared sorted. XLA prints them in the order of lists in
  memory, and every pass that replaces an instruction changes those: a removed user's position is
  taken by the last one (`HloInstruction::Users::RemoveUser`). The text of the final module does not
  tell that history. The goldens `twin_users_one` and `twin_users_other` prove it: two programs
  whose modules, allocations, live ranges and reports are the same to the byte, and whose lists of
  uses are not. hlomem takes the order of the text, calls last.
- **Usage reports up to jaxlib 0.8.0** list values of equal size, and shapes of equal count, in the
  order of a hash map (`absl::flat_hash_map`); since October 2025 XLA sorts them.
- **GPU: ids.** Value ids follow from names: bodies of all passes since fusion share one count
  (`param_0.N`), and what was there before carries a suffix (`.0`). What they leave open: what
  fusion made and merged into others moved its callers and left no trace.
- **GPU: maps in configurations.** cuDNN's `tuning_knobs` is a protobuf map, printed in the order of
  a hash with a seed of its own; it is sorted, too.
- **TPU: four entries.** `nested_while` (v5p 0.0.2), `flash_attention_blocked` (v5e, v6e 0.0.4): two
  computations of equal size are numbered the other way. `pjit_fsdp_train` (0.0.51): so are four
  clones. All values lie where XLA has them.
  [tpu-rules.md](tpu-rules.md#not-known) says what was tried, and how often programs compiled after
  the rules were found agree. Usage reports up to 0.0.24 are in a hash map's order, as on CPU.
- **Compact text** (`%fusion.5#1`) has no names and no positions in the schedule for its
  get-tuple-elements. Alone it is planned soundly, sizes agree, names and times do not; with a dump
  of the program (`--schedule`) all but the order of some lists is that of the explicit text.

## Planning from dumps alone

`hlomem replan` over every dump: whether the plan of the rebuilt program is the dump's own, and in
which stage the first difference is where it is not. Values are the dump's, so lists of uses have
its order; usage reports are compared without the order of equal rows, which is a hash map's up to
jaxlib 0.8.0. [cli.md](cli.md#replan) says what is taken from a dump and what is planned.

| group | same | values | live ranges | assignment | report | not planned |
|---|---|---|---|---|---|---|
{replan_rows}

### Why some differ

- **May or must** (`pjit_fsdp_train`, CPU). A dump shows that a fusion wrote over an operand, not
  whether it had to. One that had to makes one buffer of both: a dynamic-update-slice inside, which
  neither its name nor its metadata tells.
- **Packing on v5p by libtpu 0.0.2** (`decode_scan_donate`) differs from the module's text, too.

## Checking

`hlomem verify` with the module finds {verdicts[equal]:,} of {verdicts[total]:,} plans of XLA right,
{verdicts[values]:,} values in all. [verifier.md](verifier.md#faults) tells what it finds in plans
that are wrong.
"""


def cell(words: dict[str, int] | None) -> str:
    """How many files of a group are exact, of all."""
    return f"{words.get('exact', 0)} of {sum(words.values())}" if words else ""


def render(counts: dict[str, Any]) -> str:
    """The page."""
    rows = [
        f"| {group} | " + " | ".join(cell(row.get(name)) for name in VERDICTS) + " |"
        for group, row in sorted(counts["plans"].items())
    ]
    replan_rows = [
        f"| {group} | {words.get('same', 0)} of {sum(words.values())} | "
        + " | ".join(str(words.get(stage) or "") for stage in REPLAN_STAGES)
        + " |"
        for group, words in sorted(counts["replans"]["groups"].items())
    ]
    rules = [f"The other {n}: {rule}." for rule, n in counts["texts"]["rules"].items()]
    return TEMPLATE.format(
        **counts,
        plan_rows="\n".join(rows),
        replan_rows="\n".join(replan_rows),
        text_rules="\n".join(rules),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks, prints, writes."""
    options = parse_arguments(__doc__, arguments)
    counts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.json"
        given = ["--corpus", str(options.corpus), "--json", str(path)]
        failed = check_corpus.main(given)
        counts |= json.loads(path.read_text())
        check_plans.main(given)
        counts["plans"] = json.loads(path.read_text())
    PAGE.write_text(render(counts))
    return failed


if __name__ == "__main__":
    sys.exit(main())
