"""The results of a program: which value each part of its result is, and what its author calls it.

In: a dump joined by value, its module where at hand, and the paths of the results as JAX's
`out_info` has them. Out: the values in the order of the result, and names such as `result[0]['w']`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.base.named_tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.ir import HloModule
    from hlomem.view.joined import JoinedDump, PlacedValue

_LAYOUTS = re.compile(r"\{[^{}]*\}")
_WHOLE = "result"


class ResultPart(NamedTuple):
    """An array of a program's result."""

    output_index: tuple[int, ...]
    placed: PlacedValue


def iter_results(joined: JoinedDump, module: HloModule | None) -> Iterator[ResultPart]:
    """The arrays of the program's result, in their order."""
    root = _root_name(joined, module)
    parts: dict[tuple[int, ...], PlacedValue] = {}
    for placed in joined.placed:  # one instruction's are found faster than all are sorted
        for position in placed.used.positions if placed.used else ():
            if position.instruction == root:
                parts.setdefault(position.index or (), placed)
    for index in sorted(parts):
        if not parts[index].value.shape.startswith("("):
            yield ResultPart(tuple(index), parts[index])


def name_results(
    joined: JoinedDump, module: HloModule | None, paths: Sequence[str]
) -> dict[int, str]:
    """The names of the results, by the numbers of their values.

    Paths that are not as many as results name none: some are of another program.
    """
    parts = list(iter_results(joined, module)) if paths else []
    if len(parts) != len(paths):
        return {}
    named: dict[int, str] = {}
    for part, path in zip(parts, paths, strict=True):
        named.setdefault(part.placed.id, f"{_WHOLE}{path}")
    return named


def _root_name(joined: JoinedDump, module: HloModule | None) -> str:
    """The instruction that is the program's result; "" where nothing tells."""
    if module is not None:
        return module.entry.root.name
    output = joined.output
    if output is None or _LAYOUTS.sub("", output.value.shape) != output.allocation.output_shape:
        return ""  # something else came to lie there
    return output.value.name
