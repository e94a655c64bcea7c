"""Runs `hlomem diff` over pairs of programs and writes docs/diff.md.

    python -m tools.write_diff_page FOLDER      (what `python -m tools.pairs.record` wrote)

The words of the page are here, its figures come from `tools.check_causes`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools.check_causes import HEADS, rows_of
from tools.tables import head, row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PAGE = Path(__file__).parent.parent / "docs" / "diff.md"

KINDS = (
    (
        "backend",
        "the platforms of the dumps",
        "all that no other cause has",
    ),
    (
        "donation",
        "`input_output_alias` and `buffer_donor`; without a module, arguments that are live out",
        "results that had, or now have, memory of their own",
    ),
    (
        "offload",
        "values in the host's memory (memory space 5) on one side only",
        "arrays of the same type and dimensions on the device",
    ),
    (
        "sharding",
        (
            "`num_partitions`; arguments that change by a number of devices, with other "
            "collectives or nothing else that changes"
        ),
        "buffers that change by such a factor, and the rest",
    ),
    (
        "layers",
        "numbered scopes and arguments that are new or gone; stacked arguments a loop runs over",
        "buffers of those scopes, stacked buffers, and the rest",
    ),
    (
        "batch, sequence, width",
        "a dimension of arguments; the first of inputs, another one of inputs, one of the model",
        "buffers whose elements change by that factor, once or several times, and the rest",
    ),
    (
        "dtype",
        "types of arguments; casts (`convert_element_type`) that are new or gone",
        "buffers of another type, and the rest",
    ),
    (
        "recomputation",
        "`rematted_computation` in the names of operations, all or some of them new or gone",
        "what the forward pass kept, and the rest",
    ),
    (
        "loop",
        "`while/body` in the names of operations, new or gone",
        "what loops carry and stack, and the rest",
    ),
    (
        "layout",
        "transposed arguments; other layouts of arguments and results",
        "copies, and the rest",
    ),
    (
        "version",
        "dumps of different formats, hence releases; likely, if all is the same but the dumps",
        "the rest",
    ),
    (
        "fusion",
        "operations that are in a fusion on one side and have a buffer on the other",
        "those buffers, and the rest",
    ),
    (
        "dimension",
        "likely: a dimension of what is computed, though no argument changed",
        "buffers whose elements change by that factor",
    ),
    (
        "results' memory",
        "temporaries that lie in the memory of results when most is needed",
        "the difference",
    ),
    (
        "line, holes",
        "nothing",
        "what is left",
    ),
)
"""The kind of a cause, what shows it, and the bytes it gets; as they are asked."""

TEMPLATE = """\
# Why two compiles differ

`hlomem diff A B` compares the programs first: their arguments, results, operations and flags, as
the HLO modules beside the dumps give them. What it finds there are causes. Each is then given the
bytes of the buffers that show it, so that the causes add up to the difference exactly. What no
buffer shows, such as other temporaries at another fullest moment, goes to the cause if it is the
only one; else it is told by line of the program.

{kinds}

The table is in the order in which causes have the first word about a buffer
(`report/data/causes/explain.py`). A cause that the programs suggest but do not show says "likely".
`--json` has `kind`, `delta`, `direct` (bytes in buffers that show the change themselves), `count`,
`source` and `is_certain` of each. `optimization_barrier` leaves no trace in a compiled module; its
effect is found as a fusion. Two releases that write dumps of one format cannot be told apart, nor
can other flags: then the programs are the same, and it is likely one of these.

## Checked against known changes

{count} pairs of programs, compiled by XLA before and after one change. Right is a first cause of
the right kind, with the numbers that were changed and bytes that go the way of XLA's and are
between half and two and a half times as many (`python -m tools.check_causes`).
{right} of {count} are right. A cause that was found alone gets all that follows, so that its bytes
prove little; those that buffers show themselves stand beside them. These pairs were at hand when
the rules were made; expect less of programs that were not.

{table}
"""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([*head(heads), *map(row, rows)])


def main(folder: Path) -> None:
    """Writes the page."""
    rows = list(rows_of(folder))
    page = TEMPLATE.format(
        kinds=_table(("kind", "seen by", "its bytes"), KINDS),
        count=len(rows),
        right=sum(is_right for is_right, _ in rows),
        table=_table(HEADS, [cells for _, cells in rows]),
    )
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
