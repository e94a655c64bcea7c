"""The values of a program's result, and their paths by JAX's `out_info`: `result[0]['w']`."""

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
    root = _root_name(joined, module)
    parts: dict[tuple[int, ...], PlacedValue] = {}
    for placed in joined.placed:  # faster than indexing all positions
        for position in placed.used.positions if placed.used else ():
            if position.instruction == root:
                parts.setdefault(position.index or (), placed)
    for index in sorted(parts):
        if not parts[index].value.shape.startswith("("):
            yield ResultPart(tuple(index), parts[index])


def name_results(
    joined: JoinedDump, module: HloModule | None, paths: Sequence[str]
) -> dict[int, str]:
    """The names of the results by value id; empty if the number of paths does not match."""
    parts = list(iter_results(joined, module)) if paths else []
    if len(parts) != len(paths):
        return {}
    named: dict[int, str] = {}
    for part, path in zip(parts, paths, strict=True):
        named.setdefault(part.placed.id, f"{_WHOLE}{path}")
    return named


def _root_name(joined: JoinedDump, module: HloModule | None) -> str:
    """The instruction that returns the program's result; "" if unknown."""
    if module is not None:
        return module.entry.root.name
    output = joined.output
    if output is None or _LAYOUTS.sub("", output.value.shape) != output.allocation.output_shape:
        return ""  # another value of that allocation
    return output.value.name
