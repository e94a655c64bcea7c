"""Arguments and results whose shardings differ between two compiles of one program, by axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report.data.sharding.layouts import Layouts
from hlomem.report.data.sharding.whole_program import WholeProgram

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.sharding import Sharding
    from hlomem.report.data.memory import MemoryView

_MAX_GROUPS = 2
_MAX_NAMES = 3


def compare_shardings(before: MemoryView, after: MemoryView) -> str:
    """The arrays of the same whole shape that are split otherwise, in words; empty if none.

    Needs both programs as they were before partitioning.
    """
    old, new = _shardings(before), _shardings(after)
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name, (whole, sharding) in new.items():
        if name in old and old[name][0] == whole and old[name][1].spec() != sharding.spec():
            was = old[name][1]
            key = was.spec(), sharding.spec(), ", ".join(_changed_axes(was, sharding))
            groups.setdefault(key, []).append(name)
    return "; ".join(_words(groups))


def _words(groups: dict[tuple[str, str, str], list[str]]) -> Iterator[str]:
    order = sorted(groups.items(), key=lambda item: -len(item[1]))
    for (was, now, axes), names in order[:_MAX_GROUPS]:
        shown = ", ".join(names[:_MAX_NAMES])
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        along = f" (along {axes})" if axes else ""
        yield f"{shown}{more}: {was} became {now}{along}"
    if rest := order[_MAX_GROUPS:]:
        yield f"{sum(len(names) for _, names in rest)} others"


def _changed_axes(was: Sharding, now: Sharding) -> list[str]:
    """The axes that split more or less than before, or another dimension."""
    old = {axis.name: at for at, axes in enumerate(was.dimensions) for axis in axes}
    new = {axis.name: at for at, axes in enumerate(now.dimensions) for axis in axes}
    return [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]


def _shardings(memory: MemoryView) -> dict[str, tuple[tuple[int, ...], Sharding]]:
    """Whole shapes and shardings of arguments and results, by name."""
    if memory.dump.whole is None or memory.module is None:
        return {}
    whole = WholeProgram(memory.dump.whole)
    layouts = Layouts(memory, whole)
    named = {
        whole.parameters[number].metadata.op_name or f"parameter {number}": layout
        for number, layout in layouts.parameters.items()
    }
    returned = {f"result {number}": layout for number, layout in enumerate(layouts.results)}
    return {
        name: (layout.whole, layout.sharding)
        for name, layout in {**named, **returned}.items()
        if layout is not None and layout.sharding is not None
    }
