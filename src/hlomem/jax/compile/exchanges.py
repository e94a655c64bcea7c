"""All-to-alls that are written as a gather and a slice, found in a trace.

In: a jaxpr. Out: the all-gathers of which each device takes the part that has its own number and
nothing else. With an all-to-all instead no device ever has the whole.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.jax.compile.flat_jaxprs import FlatJaxpr, Outside, handed_on, inner_jaxprs
from hlomem.report.data.sharding.decision import Exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hlomem.jax.compile.flat_jaxprs import Step, Value

_GATHERS = ("all_gather", "all_gather_invariant")
_TAKES = ("dynamic_slice", "gather")
_SAME = frozenset({"convert_element_type", "copy", "pvary", "pcast", "stop_gradient"})
"""Operations that leave each element at its position."""
_NUMBERS: dict[str, Callable[..., int]] = {
    "add": lambda one, other: one + other,
    "sub": lambda one, other: one - other,
    "mul": lambda one, other: one * other,
    "max": max,
    "min": min,
    "lt": lambda one, other: one < other,
    "ge": lambda one, other: one >= other,
    "clamp": lambda least, one, most: min(max(one, least), most),
    "select_n": lambda which, *cases: cases[which],
    **{
        name: lambda one, *_: one
        for name in (*_SAME, "broadcast_in_dim", "reshape", "squeeze", "expand_dims")
    },
}
"""Operations on the number of a device, to find the part that it takes."""
_MAX_STEPS = 64


class Taken(NamedTuple):
    """A gather, the way of what it gathers, and the step by which a device takes its part."""

    gather: Step
    way: tuple[Step, ...]
    """From the gather on, without it."""
    take: Step
    split: int
    """The dimension of what is gathered whole of which a device keeps one part."""
    at: tuple[int, ...]
    """The same dimension of what each step of the way reads, and of what is taken from."""

    @property
    def devices(self) -> int:
        return int(self.gather.params["axis_size"])


def find_exchanges(jaxpr: Any) -> tuple[Exchange, ...]:
    """The all-to-alls of a program that are written as a gather and a slice."""
    found = {_told(taken): None for taken in _in_all(jaxpr, {})}
    return tuple([one for one in found if one.gathered and one.taken])


def _in_all(
    jaxpr: Any, sizes: Mapping[str, int], outside: Outside | None = None
) -> Iterator[Taken]:
    """Those of a jaxpr, and of the loops and functions in it; axes have these sizes."""
    flat = FlatJaxpr(jaxpr, outside)
    if sizes:
        yield from takes_of(flat, sizes)
    for step in flat.steps:
        mesh = step.params.get("mesh")
        inner = {**sizes, **mesh.shape} if step.name == "shard_map" and mesh is not None else sizes
        for part in inner_jaxprs(step.equation):
            yield from _in_all(part, inner, Outside(flat, handed_on(step, part)))


def _told(taken: Taken) -> Exchange:
    gather = taken.gather
    params, out = gather.params, gather.equation.outvars[0].aval
    return Exchange(
        gathered=gather.line,
        taken=taken.take.line,
        axes=_axes(params["axis_name"]),
        shape=gather.shape(),
        split=taken.split,
        concat=int(params["all_gather_dimension"]),
        is_tiled=bool(params["tiled"]),
        is_moved=any(step.name not in _SAME for step in taken.way),
        size=prod(out.shape) * int(out.dtype.itemsize),
        devices=taken.devices,
    )


def _axes(given: Any) -> tuple[str, ...]:
    return tuple(map(str, given)) if isinstance(given, tuple | list) else (str(given),)


def takes_of(flat: FlatJaxpr, sizes: Mapping[str, int]) -> Iterator[Taken]:
    """The gathers of a jaxpr all of whose readers take the part with the number of the device."""
    for step in flat.steps:
        if step.name in _GATHERS and step.params.get("axis_index_groups") is None:
            ways = list(_ways(flat, step.outputs[0], ()))
            found = [None if way is None else _of_way(flat, step, way, sizes) for way in ways]
            yield from [one for one in found if one is not None] if None not in found else ()


def _ways(
    flat: FlatJaxpr, value: int, before: tuple[Step, ...]
) -> Iterator[tuple[Step, ...] | None]:
    """The ways from a value to all that takes a part of it; None for one that reads the whole."""
    if flat.is_result(value) or len(before) > _MAX_STEPS:
        yield None
        return
    for reader in flat.readers[value]:
        way = (*before, reader)
        if value not in reader.inputs[:1] or value in reader.inputs[1:]:
            yield None
        elif reader.name in _TAKES and _starts(reader) is not None:
            yield way
        elif reader.name in ("transpose", "reshape", "squeeze", "slice", "split", *_SAME):
            for output in reader.outputs:
                yield from _ways(flat, output, way)
        else:
            yield None


def _starts(take: Step) -> list[tuple[int, Value]] | None:
    """The dimensions that a part is taken along, with where it begins; None if it is no part."""
    shape = take.shape()
    if take.name == "dynamic_slice":
        sizes, starts = take.params["slice_sizes"], dict(enumerate(take.inputs[1:]))
    else:
        numbers, sizes = take.params["dimension_numbers"], take.params["slice_sizes"]
        is_one = prod(take.shape(1)) == 1 and len(numbers.start_index_map) == 1
        if not is_one or len(numbers.offset_dims) != len(take.result_shape):
            return None
        starts = {numbers.start_index_map[0]: take.inputs[1]}
    return [(at, starts[at]) for at, size in enumerate(sizes) if size != shape[at] and at in starts]


def _of_way(
    flat: FlatJaxpr, gather: Step, way: tuple[Step, ...], sizes: Mapping[str, int]
) -> Taken | None:
    """A way if it ends in the part with the number of the device, of equal ones."""
    *between, take = way
    count = int(gather.params["axis_size"])
    starts = _starts(take) or []
    if len(starts) != 1:
        return None
    [(split, start)] = starts
    part, whole = int(take.params["slice_sizes"][split]), take.shape()[split]
    if part * count != whole or not _is_own(flat, start, part, gather, sizes):
        return None
    at = [split]
    for step in reversed(between):
        before = _before(step, at[0], count)
        if before is None:
            return None
        at.insert(0, before)
    is_other = at[0] != int(gather.params["all_gather_dimension"])
    return Taken(gather, tuple(between), take, at[0], tuple(at)) if is_other else None


def _is_own(
    flat: FlatJaxpr, start: Value, part: int, gather: Step, sizes: Mapping[str, int]
) -> bool:
    """Whether each device's part begins at its number times the size of a part."""
    axes = _axes(gather.params["axis_name"])
    if any(axis not in sizes for axis in axes):
        return False
    for number, place in enumerate(product(*[range(sizes[axis]) for axis in axes])):
        if _number(flat, start, dict(zip(axes, place, strict=True))) != number * part:
            return False
    return True


def _number(flat: FlatJaxpr, value: Value, place: Mapping[str, int], depth: int = 0) -> int | None:
    """A number that is computed of the position of a device in the mesh; None if it is of more."""
    if not isinstance(value, int):
        number = value.val
        return int(number) if prod(getattr(number, "shape", ())) == 1 else None
    if depth > _MAX_STEPS:
        return None
    step = flat.makers.get(value)
    if step is None:
        there = flat.outside_of(value)
        return None if there is None else _number(*there, place, depth + 1)
    if step.name == "axis_index":
        return place.get(_axes(step.params["axis_name"])[0])
    if step.name not in _NUMBERS or prod(step.result_shape) != 1:
        return None
    parts = [_number(flat, one, place, depth + 1) for one in step.inputs]
    known = [one for one in parts if one is not None]
    return int(_NUMBERS[step.name](*known)) if len(known) == len(parts) else None


def _before(step: Step, at: int, count: int) -> int | None:
    """The dimension of what a step reads that is a dimension of what it makes, in equal parts."""
    shape, result = step.shape(), step.result_shape
    if step.name == "transpose":
        return int(step.params["permutation"][at])
    if step.name == "squeeze":
        left = [one for one in range(len(shape)) if one not in step.params["dimensions"]]
        return left[at]
    if step.name == "reshape":
        fitting = [
            one
            for one, size in enumerate(shape)
            if prod(shape[:one]) == prod(result[:at]) and size % count == 0
        ]
        return fitting[0] if fitting and step.params.get("dimensions") is None else None
    is_whole = step.name in _SAME or shape[at] == result[at]
    return at if is_whole else None
