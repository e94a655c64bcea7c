"""Slices of stacks as a loop's body writes and reads them.

A write is a `dynamic-update-slice`, or a fusion one of whose results ends in one; a read is a
`dynamic-slice`, or several in a fusion. Either may run asynchronously, and through bitcasts that
keep the slices' bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlomem.hlo.shape import Shape, default_layout
from hlomem.opt.orders.trips import integers_inside

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction

Callers: TypeAlias = "Mapping[HloComputation, int]"
"""By computation the number of instructions that call it."""
Ticks: TypeAlias = "Sequence[Mapping[HloInstruction, int]]"
"""By iteration: the integers of the body."""
_WRITE = "dynamic-update-slice"
_READ = "dynamic-slice"
_OPERANDS_BEFORE_PLACES = {_WRITE: 2, _READ: 1}
_CALLING = ("fusion", "async-start")
_OPAQUE = "kCustom"
"""The kind of fusions whose bodies are not all that counts: emitters know them by their names."""


class Write(NamedTuple):
    runs: HloInstruction
    """The instruction of the body that does it."""
    number: int
    """The number of its operand that the stack is."""
    access: HloInstruction
    """The `dynamic-update-slice`."""
    forwarding: tuple[HloInstruction, ...]
    """Instructions of the body that hand the stack on, the last first."""

    @property
    def update(self) -> HloInstruction:
        """The slice."""
        return self.access.operands[1]


class Read(NamedTuple):
    """An instruction of the second loop that reads slices of a stack."""

    instruction: HloInstruction
    number: int
    """The number of its operand that the stack is."""


class _Slice(NamedTuple):
    path: tuple[HloInstruction, ...]
    """Instructions that call the body it is in, from the outermost; empty where none does."""
    access: HloInstruction


def stacked(shape: Shape, count: int) -> Shape:
    """The shape of a stack of so many slices, each whole in memory."""
    layout = shape.layout or default_layout(len(shape.dimensions))
    order = (*[dimension + 1 for dimension in layout.minor_to_major], 0)
    return Shape(
        shape.element_type,
        (count, *shape.dimensions),
        (),
        layout._replace(minor_to_major=order, memory_space=default_layout(0).memory_space),
    )


def one_slice(shape: Shape) -> Shape:
    return Shape(shape.element_type, (1, *shape.dimensions[1:]), (), shape.layout)


def narrowed(shape: Shape, like: Shape) -> Shape:
    """A shape with the element type of another, and tiles as that has them."""
    layout = shape.layout
    if layout is not None and like.layout is not None:
        layout = layout._replace(tiles=like.layout.tiles)
    return Shape(like.element_type, shape.dimensions, shape.dynamic, layout)


def holds_slices(shape: Shape) -> bool:
    """Whether the slices of an array lie one after another in memory, each whole.

    libtpu tiles arrays of two dimensions and more by two at least, so that none holds vectors so.
    """
    layout = shape.layout
    if layout is None or not shape.dimensions or any(shape.dynamic):
        return False
    tiled = [len(tile) for tile in layout.tiles]
    if tiled[:1] == [1] and len(shape.dimensions) > 1:
        return False
    return layout.minor_to_major[-1] == 0 and max(tiled, default=0) < len(shape.dimensions)


def have_same_slices(one: Shape, other: Shape) -> bool:
    """Whether two shapes of the same bytes are stacks of the same slices."""
    return holds_slices(one) and holds_slices(other) and one.dimensions[0] == other.dimensions[0]


def without_bitcasts(value: HloInstruction) -> HloInstruction:
    """The value whose bytes another is in its own shape."""
    while value.opcode == "bitcast":
        value = value.operands[0]
    return value


def fusion_of(instruction: HloInstruction) -> HloInstruction | None:
    """The fusion that an instruction is, or runs on its own operands asynchronously."""
    if instruction.opcode == "fusion":
        return instruction
    if instruction.opcode != "async-start":
        return None
    [computation] = instruction.called_computations
    root = computation.root
    if root.opcode != "fusion" or list(root.operands) != list(computation.parameters):
        return None
    return root


def is_transparent(fusion: HloInstruction) -> bool:
    """Whether a fusion does what its body says, however that is put into other bodies."""
    return fusion.attributes.get("kind") != _OPAQUE


# Writes.


def find_write(
    element: HloInstruction, root: HloInstruction, index: int, callers: Callers
) -> Write | None:
    """The write that an element of a body's state goes through on its way to the root."""
    forwarding = list(_handing_on(root, index))
    if not forwarding:
        return None
    runs = forwarding.pop()
    if element.users != [runs] or runs.operands.count(element) != 1:
        return None
    number = runs.operands.index(element)
    if runs.opcode == _WRITE:
        access: HloInstruction | None = runs if number == 0 else None
    else:
        is_one_of = forwarding and forwarding[-1].opcode == "get-tuple-element"
        result = forwarding[-1].tuple_index if is_one_of else None
        access = _fused_write(runs, number, result, callers)
    if access is None or not _is_whole_slice(access.operands[1].shape, access.operands[0].shape):
        return None
    return Write(runs, number, access, tuple(forwarding))


def _handing_on(root: HloInstruction, index: int) -> Iterator[HloInstruction]:
    """The way back from the root to what writes; nothing where others take of it, too."""
    passed = [root]
    value = root.operands[index]
    if root.operands.count(value) != 1:
        return
    while True:
        later = passed[-1]
        is_shared = value.users != [later] and value.opcode != "fusion"
        if is_shared or (value.users != [later] and later.opcode != "get-tuple-element"):
            return
        passed.append(value)
        if value.opcode == "bitcast":
            if not have_same_slices(value.shape, value.operands[0].shape):
                return
        elif value.opcode == "get-tuple-element":
            if sum(user.tuple_index == value.tuple_index for user in value.operands[0].users) != 1:
                return
        elif value.opcode != "async-done":
            break
        value = value.operands[0]
    yield from passed[1:]


def _fused_write(
    runs: HloInstruction, number: int, result: int | None, callers: Callers
) -> HloInstruction | None:
    """The write in the body of a fusion, if its operand goes nowhere else."""
    fusion = fusion_of(runs)
    if fusion is None or not is_transparent(fusion) or not _is_called_once(runs, callers):
        return None
    [body] = fusion.called_computations
    later = body.root
    if (later.opcode == "tuple") != (result is not None):
        return None
    inside = body.root if result is None else body.root.operands[result]
    if result is not None and body.root.operands.count(inside) != 1:
        return None
    while inside.opcode == "bitcast":
        if inside.users not in ([], [later]):
            return None
        if not have_same_slices(inside.shape, inside.operands[0].shape):
            return None
        later, inside = inside, inside.operands[0]
    if inside.opcode != _WRITE or inside.users not in ([], [later]):
        return None
    return inside if _begins_at(inside, body.parameters[number]) else None


def _begins_at(access: HloInstruction, parameter: HloInstruction) -> bool:
    """Whether what is written to is a parameter, which nothing else reads."""
    later, inside = access, access.operands[0]
    if access.operands.count(inside) != 1:
        return False
    while inside.opcode == "bitcast":
        if inside.users != [later]:
            return False
        if not have_same_slices(inside.shape, inside.operands[0].shape):
            return False
        later, inside = inside, inside.operands[0]
    return inside is parameter and inside.users == [later]


def _is_called_once(runs: HloInstruction, callers: Callers) -> bool:
    fusion = fusion_of(runs)
    called = (runs, fusion) if fusion is not None and fusion is not runs else (runs,)
    return all(callers.get(one.called_computations[0], 1) == 1 for one in called)


def places_of_write(write: Write, ticks: Ticks) -> list[int] | None:
    fusion = fusion_of(write.runs)
    path = () if fusion is None else (write.runs,) if fusion is write.runs else (write.runs, fusion)
    return _places(_Slice(path, write.access), ticks)


# Reads.


def places_of_read(read: Read, ticks: Ticks, callers: Callers) -> list[list[int]] | None:
    """By slice and iteration the index that is read; None where anything else is done."""
    slices = _slices_of(read.instruction, read.number, (), callers)
    if not slices:
        return None
    found = [_places(part, ticks) for part in slices]
    known = [places for places in found if places is not None]
    return known if len(known) == len(found) else None


def _slices_of(
    user: HloInstruction, number: int, path: tuple[HloInstruction, ...], callers: Callers
) -> list[_Slice]:
    """The slices that an instruction takes of an operand; none where it does anything else."""
    if user.opcode == _READ:
        is_slice = number == 0 and _is_whole_slice(user.shape, user.operands[0].shape)
        return [_Slice(path, user)] if is_slice else []
    if user.opcode == "bitcast" and path:
        if user.is_root or not have_same_slices(user.shape, user.operands[0].shape):
            return []
        return _all_slices(user, path, callers)
    if user.opcode not in _CALLING or not is_transparent(user):
        return []
    [body] = user.called_computations
    if callers.get(body, 1) != 1 or body.parameters[number].is_root:
        return []
    return _all_slices(body.parameters[number], (*path, user), callers)


def _all_slices(
    value: HloInstruction, path: tuple[HloInstruction, ...], callers: Callers
) -> list[_Slice]:
    found: list[_Slice] = []
    for user in value.users:
        for number, operand in enumerate(user.operands):
            if operand is value:
                slices = _slices_of(user, number, path, callers)
                if not slices:
                    return []
                found += slices
    return found


# Both.


def _is_whole_slice(part: Shape, whole: Shape) -> bool:
    """Whether a part is one slice of a stack, whole in all dimensions but the first."""
    return holds_slices(whole) and part.dimensions == (1, *whole.dimensions[1:])


def _places(part: _Slice, ticks: Ticks) -> list[int] | None:
    """By iteration the index of a slice in its stack; None where it is not known."""
    access = part.access
    first, *others = access.operands[_OPERANDS_BEFORE_PLACES[access.opcode] :]
    places: list[int] = []
    for tick in ticks:
        known: Mapping[HloInstruction, int] = tick
        for caller in part.path:
            known = integers_inside(caller, known)
        place = known.get(first)
        if place is None or any(known.get(other) != 0 for other in others):
            return None
        places.append(min(max(place, 0), access.operands[0].shape.dimensions[0] - 1))
    return places
