"""Resizing a dimension everywhere: the sizes that follow, and the instructions that forbid it.

Sizes that depend on it follow: if a bitcast or reshape merges `[8,128]` into `[1024]` and 8 becomes
16, 1024 becomes 2048; likewise for collectives. Edits that would change the program are refused:
partial slices, iterations, windows and concatenations of the dimension.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hlomem.base.errors import EditError
from hlomem.base.patterns import lazy_pattern
from hlomem.hlo.opcodes import Opcode, opcodes_where
from hlomem.hlo.shape import INT64_MAX, Shape
from hlomem.hlo.shape_edits import map_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hlomem.hlo.ir import HloInstruction, HloModule

_SLICE = lazy_pattern(r"\[(\d{1,18}):(\d{1,18})(?::(\d{1,18}))?\]")
_WINDOW_SIZE = lazy_pattern(r"size=([0-9x]+)")
_RESHAPES = opcodes_where(lambda traits: traits.keeps == "places")
_GATHERS = frozenset[Opcode]({"all-gather", "all-to-all", "reduce-scatter"})
_ELIDED = "{...}"


class Resize:
    """A change of one size, and of those that follow."""

    def __init__(self, old: int, new: int) -> None:
        self._old = old
        self._new = new
        self.sizes = {old: new}
        self._constants: set[HloInstruction] = set()

    def find_sizes(self, instructions: Sequence[HloInstruction]) -> None:
        """Find the sizes that follow; raises `EditError` for an instruction that forbids it."""
        known = 0
        while known != len(self.sizes):
            known = len(self.sizes)
            for instruction in instructions:
                for one, other in _kept_products(instruction):
                    self._balance(one, other, instruction)
        for instruction in instructions:
            is_resized = not self.sizes.keys().isdisjoint(instruction.shape.dimensions)
            if instruction.opcode == "constant" and is_resized:
                self._constants.add(instruction)
            check = _CHECKS.get(instruction.opcode)
            if check is not None:
                check(self, instruction)

    def shape(self, array: Shape) -> Shape:
        """An array with the new sizes, or itself if it has none of the old ones."""
        dimensions = self._resized(array.dimensions)
        if dimensions == array.dimensions:
            return array
        if prod(dimensions) * array.element_type.byte_width > INT64_MAX:
            raise EditError(f"an array of {array.text_without_layout} would be too large")
        return Shape(array.element_type, dimensions, array.dynamic, array.layout)

    def finish(self, instruction: HloInstruction) -> None:
        """Update the sizes in attributes and literals."""
        if instruction in self._constants:
            instruction.payload = _ELIDED
        name, make = _FINISH.get(instruction.opcode, ("", None))
        text = instruction.attributes.get(name) if make is not None else None
        if make is not None and text is not None:
            instruction.set_attributes({**instruction.attributes, name: make(self, text)})

    def _resized(self, dimensions: Sequence[int]) -> tuple[int, ...]:
        return tuple([self.sizes.get(size, size) for size in dimensions])

    def _balance(self, one: list[int], other: list[int], instruction: HloInstruction) -> None:
        """Restore the equality of two products of dimensions."""
        products = prod(self._resized(one)), prod(self._resized(other))
        if products[0] == products[1]:
            return
        lagging = one if (products[0] < products[1]) == (self._new > self._old) else other
        candidates = {size for size in lagging if size % self._old == 0 and size not in self.sizes}
        if len(candidates) != 1:
            problem = f"{one} and {other} would no longer have as many elements"
            raise EditError(f"`{instruction.name}`: {problem}, whichever dimension follows")
        [size] = candidates
        self.sizes[size] = size // self._old * self._new

    def check_slice(self, instruction: HloInstruction) -> None:
        """A slice must take all of a resized dimension."""
        ranges = _SLICE.findall(instruction.attributes.get("slice", ""))
        dimensions = instruction.operands[0].shape.dimensions
        for size, (start, limit, stride) in zip(dimensions, ranges, strict=False):
            if size in self.sizes and (start, limit, stride or "1") != ("0", str(size), "1"):
                raise self._cut(instruction, size)

    def check_dynamic_slice(self, instruction: HloInstruction) -> None:
        """So must a dynamic slice, and a dynamic update must replace all of it."""
        whole = instruction.operands[0].shape
        is_update = instruction.opcode == "dynamic-update-slice"
        part = instruction.operands[1].shape if is_update else instruction.shape
        for size, taken in zip(whole.dimensions, part.dimensions, strict=False):
            if size in self.sizes and taken != size:
                raise self._cut(instruction, size)

    def check_concatenate(self, instruction: HloInstruction) -> None:
        """Nothing is concatenated or padded along it."""
        operand = instruction.operands[0].shape.dimensions
        for size, result in zip(operand, instruction.shape.dimensions, strict=False):
            if size != result and (size in self.sizes or result in self.sizes):
                raise self._cut(instruction, size)

    def check_window(self, instruction: HloInstruction) -> None:
        """No window has its size."""
        match = _WINDOW_SIZE.search(instruction.attributes.get("window", ""))
        for size in match[1].split("x") if match else ():
            if int(size) in self.sizes:
                raise self._cut(instruction, int(size))

    def _cut(self, instruction: HloInstruction, size: int) -> EditError:
        what = f"`{instruction.opcode}` splits or joins a dimension of {size}"
        return EditError(f"`{instruction.name}`: {what}, which would be {self.sizes.get(size)}")

    def slice_text(self, text: str) -> str:
        return _SLICE.sub(lambda match: self._range(*match.groups()), text)

    def _range(self, start: str, limit: str, stride: str | None) -> str:
        is_whole = start == "0" and int(limit) in self.sizes
        end = self.sizes[int(limit)] if is_whole else limit
        return f"[{start}:{end}]" if stride is None else f"[{start}:{end}:{stride}]"

    def sizes_text(self, text: str) -> str:
        numbers = [int(number) for number in text.strip("{}").split(",") if number.strip()]
        return f"{{{','.join(map(str, self._resized(numbers)))}}}"


def resized_arrays(module: HloModule, old: int, new: int) -> dict[Shape, Shape]:
    """The arrays outside fusions after `Rewriter.resize` by present ones; raises `EditError`."""
    resize = checked_resize(old, new)
    resize.find_sizes(list(module.iter_instructions()))
    shapes = {id(held.shape): held.shape for held in module.iter_outer_instructions()}
    parts = {part for shape in shapes.values() for part in shape.parts.shapes}
    return {part: map_leaves(part, resize.shape) for part in parts if not part.is_tuple}


def checked_resize(old: int, new: int) -> Resize:
    """A change of one size; raises `EditError` if it is impossible."""
    if old < 2 or new < 1:  # too many dimensions have size 1
        raise EditError(f"a dimension cannot be resized from {old} to {new}")
    return Resize(old, new)


def _kept_products(instruction: HloInstruction) -> Iterator[tuple[list[int], list[int]]]:
    if instruction.opcode in _RESHAPES and instruction.shape.is_array:
        shapes = instruction.operands[0].shape, instruction.shape
        physical = instruction.opcode == "bitcast"
        yield from _groups(*(_major_to_minor(shape, physical=physical) for shape in shapes))
    elif instruction.opcode in _GATHERS and instruction.shape.is_array:
        operand = instruction.operands[0].shape
        for one, other in zip(operand.dimensions, instruction.shape.dimensions, strict=False):
            if one > other and one % other == 0:
                yield [one], [other, one // other]
            elif other > one and other % one == 0:
                yield [one, other // one], [other]


def _major_to_minor(shape: Shape, *, physical: bool) -> list[int]:
    """The dimensions larger than 1, in the order of memory or of the text."""
    if not physical or shape.layout is None:
        return [size for size in shape.dimensions if size != 1]
    order = reversed(shape.layout.minor_to_major)
    return [shape.dimensions[dimension] for dimension in order if shape.dimensions[dimension] != 1]


def _groups(one: list[int], other: list[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Two lists with equal products, split where the products so far are equal."""
    first: list[int] = []
    second: list[int] = []
    rest, others = iter(one), iter(other)
    while True:
        size = next(rest, None) if prod(first) <= prod(second) else next(others, None)
        if size is None:
            break
        (first if prod(first) <= prod(second) else second).append(size)
        if prod(first) == prod(second):
            yield first, second
            first, second = [], []


_CHECKS: Mapping[Opcode, Callable[[Resize, HloInstruction], None]] = {
    "concatenate": Resize.check_concatenate,
    "convolution": Resize.check_window,
    "dynamic-slice": Resize.check_dynamic_slice,
    "dynamic-update-slice": Resize.check_dynamic_slice,
    "pad": Resize.check_concatenate,
    "reduce-window": Resize.check_window,
    "select-and-scatter": Resize.check_window,
    "slice": Resize.check_slice,
}
_FINISH: Mapping[Opcode, tuple[str, Callable[[Resize, str], str]]] = {
    "dynamic-slice": ("dynamic_slice_sizes", Resize.sizes_text),
    "gather": ("slice_sizes", Resize.sizes_text),
    "slice": ("slice", Resize.slice_text),
}
