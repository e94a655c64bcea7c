"""The rows of a table of `fit`: for each combination of values a machine, a mesh and settings.

`chip`, `topology`, `slices` and `target` choose the machine, `mesh` divides its devices into named
axes; every other name is a setting of the factory.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.errors import CommandError, HlomemError
from hlomem.base.source import visible
from hlomem.jax.target_kinds import Target, chip_target, parse_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MESH = "mesh"
AUTO = "auto"
MACHINE_WORDS = ("target", "chip", "topology", "slices")
"""Names of `rows` that choose the machine."""
MAX_ROWS = 1000


class Cell(NamedTuple):
    """One row to be searched, or the reason why there is nothing to search."""

    own: dict[str, Any]
    """The values of the row, as they are shown."""
    target: Target | None
    settings: dict[str, Any]
    """Those of them that the factory is given."""
    problem: str = ""


def make_cells(
    base: Target, rows: Mapping[str, Sequence[Any]], axes: Sequence[str] = ()
) -> list[Cell]:
    """Every combination of the values of `rows`; what cannot be is a cell with its reason."""
    if MESH in rows and not axes:
        problem = "a mesh has named axes"
        raise CommandError(f"{problem}: give them by --axes (in Python `axes`), as in data,model")
    cells: list[Cell] = []
    for values in product(*rows.values()):
        cells += _cells_of(base, dict(zip(rows, values, strict=True)), tuple(axes))
        if len(cells) > MAX_ROWS:
            raise CommandError(f"more than {MAX_ROWS} rows: give fewer values")
    return cells


def _cells_of(base: Target, row: dict[str, Any], axes: tuple[str, ...]) -> Iterator[Cell]:
    try:
        target = _target_of(base, row)
    except HlomemError as error:
        yield Cell(row, None, {}, str(error).partition("\n")[0])
        return
    settings = {name: value for name, value in row.items() if name not in MACHINE_WORDS}
    if MESH not in row:
        yield Cell(row, target, settings)
        return
    for sizes in _meshes(row[MESH], target, len(axes)):
        own = {**row, MESH: "x".join(map(str, sizes)) if isinstance(sizes, tuple) else sizes}
        if problem := _fault_of(sizes, target, axes):
            yield Cell(own, target, {}, problem)
        else:
            yield Cell(own, target, {**settings, MESH: dict(zip(axes, sizes, strict=True))})


def _target_of(base: Target, row: Mapping[str, Any]) -> Target:
    if "target" in row:
        if len(row.keys() & set(MACHINE_WORDS)) > 1:
            raise CommandError("a target has its chip, topology and slices: give one or the other")
        return parse_target(str(row["target"]))
    chip, slices = str(row.get("chip", base.chip)), row.get("slices", base.slices)
    is_machine_here = not base.chip and not row.get("chip")
    if is_machine_here and row.keys() & {"topology", "slices"}:
        raise CommandError(f"{base.name} has neither topology nor slices: give a target or chips")
    if is_machine_here:
        return base
    if type(slices) is not int or slices < 1:
        raise CommandError(f"`slices={visible(str(slices))}` is no number of slices")
    as_many = str(base.chip_count // base.slices) if base.chip and chip != base.chip else ""
    topology = str(row.get("topology", "")) or as_many or base.topology
    return chip_target(chip, topology, slices)


def _meshes(word: Any, target: Target, axes: int) -> Iterator[Any]:
    """The sizes of axes a word stands for, or the word where it stands for none."""
    if word == AUTO:
        one_slice = target.device_count // target.slices
        for sizes in factorizations(one_slice, axes):
            yield (sizes[0] * target.slices, *sizes[1:])
        return
    parts = str(word).split("x")
    yield tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else word


def _fault_of(sizes: Any, target: Target, axes: Sequence[str]) -> str:
    if not isinstance(sizes, tuple):
        return f"`{visible(str(sizes))}` is no mesh: give sizes, as in 4x4, or {AUTO}"
    if len(sizes) != len(axes):
        return f"it has {len(sizes)} axes, not those of {', '.join(map(visible, axes))}"
    if prod(sizes) != target.device_count:
        return f"it has {prod(sizes)} devices, {target.name} has {target.device_count}"
    return ""


def factorizations(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as a product of so many, the first largest first."""
    if parts == 1:
        yield (number,)
        return
    for first in range(number, 0, -1):
        if number % first == 0:
            for rest in factorizations(number // first, parts - 1):
                yield (first, *rest)
