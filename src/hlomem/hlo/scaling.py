"""A program's shapes at any size, from compiles at two sizes of a batch or a sequence.

An extent is proportional to the size, its square, cube or inverse, else linear. Two points do not
prove that, so contradictions are refused: fractional extents, reshapes that would lose elements,
and lines that fall too fast towards zero. The compiler may still choose another program at the
third size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import CommandError
from hlomem.hlo.opcodes import opcodes_where
from hlomem.hlo.padding import element_count
from hlomem.hlo.shape import INT64_MAX, UNBOUNDED, Shape, buffer_shape
from hlomem.hlo.text.aligned import align_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloModule

_POWERS = (1, 2, 3)
_KEEP_ELEMENTS = opcodes_where(lambda traits: traits.keeps == "places")


class GrowthError(CommandError):
    """A size at which the shapes of a program are unknown."""


class Sizes(NamedTuple):
    """The two sizes at which a program is known."""

    one: int
    other: int

    def extent(self, one: int, other: int, size: int) -> int:
        """An extent at a third size; raises `GrowthError` if it is unknown."""
        if one == other:
            return one
        top, bottom = self._fraction(one, other, size)
        if top % bottom or top < 0:
            seen = f"{one} at {self.one} and {other} at {self.other}"
            raise GrowthError(f"an extent that is {seen} would not be an integer at {size}")
        return top // bottom

    def _fraction(self, one: int, other: int, size: int) -> tuple[int, int]:
        for power in _POWERS:
            if one * self.other**power == other * self.one**power:
                return one * size**power, self.one**power
        if one * self.one == other * self.other:
            return one * self.one, size
        (low, first), (high, last) = sorted([(self.one, one), (self.other, other)])
        rise, run = last - first, high - low
        at_zero = first * run - rise * low  # times `run`
        if at_zero < 0 and -2 * at_zero > rise * low:  # a small offset is plausible
            seen = f"{one} at {self.one} and {other} at {self.other}"
            raise GrowthError(f"an extent that is {seen} grows faster than the size")
        return first * run + rise * (size - low), run


class Growth:
    """Shapes as functions of a size; `UnsupportedError` if the modules are not one program."""

    def __init__(self, one: HloModule, other: HloModule, sizes: tuple[int, int]) -> None:
        self.one = one
        self.other = other
        self.sizes = Sizes(*sizes)
        if sizes[0] == sizes[1] or min(sizes) < 1:
            raise CommandError("give compiles at two different sizes, 1 or more")
        for _ in align_texts(one.source, other.source):
            pass
        self._leaves: dict[tuple[Shape, Shape], None] = {}
        self._reshapes: set[tuple[tuple[Shape, Shape], tuple[Shape, Shape]]] = set()
        self._collect()
        self._check_sizes()

    def _check_sizes(self) -> None:
        """Refuse programs without growth, and swapped sizes."""
        extents = {
            pair
            for shapes in self._leaves
            for array, other in [map(_array_of, shapes)]
            for pair in zip(array.dimensions, other.dimensions, strict=True)
        }
        if all(one == other for one, other in extents):
            raise CommandError("both programs have the same shapes: nothing grows with the size")
        if self.sizes[::-1] in extents and self.sizes not in extents:
            one, other = self.sizes
            problem = f"the program of size {one} has extent {other}, that of {other} extent {one}"
            raise CommandError(f"{problem}: give the sizes in the order of the programs")

    def _collect(self) -> None:
        """Collect corresponding shapes, and shapes with equally many elements."""
        seen: set[tuple[int, int]] = set()
        modules = self.one.iter_outer_instructions(), self.other.iter_outer_instructions()
        for instruction, its in zip(*modules, strict=True):
            shapes = instruction.shape, its.shape
            key = id(shapes[0]), id(shapes[1])
            if key not in seen:
                seen.add(key)
                self._leaves.update(dict.fromkeys(_leaves(*shapes)))
            if instruction.opcode in _KEEP_ELEMENTS:
                read = instruction.operands[0].shape, its.operands[0].shape
                self._reshapes.add((read, shapes))

    def shapes_at(self, size: int, *, of_other: bool = False) -> dict[Shape, Shape] | None:
        """The arrays outside fusions at a size, by those of the first module or the other.

        None if arrays that are equal in that module would differ at this size, or vice versa.
        """
        made = {pair: self._shape_at(*pair, size) for pair in self._leaves}
        self._check_reshapes(made, size)
        found: dict[Shape, Shape] = {}
        for pair, shape in made.items():
            if found.setdefault(pair[of_other], shape) != shape:
                return None
        return found if len(set(found.values())) == len(found) else None

    def text_at(self, size: int) -> str:
        """A text to plan at a size, with right shapes, but wrong literals and settings."""
        return "".join(
            [
                piece if isinstance(piece, str) else str(self.sizes.extent(*piece, size))
                for piece in align_texts(self.one.source, self.other.source)
            ]
        )

    def _shape_at(self, one: Shape, other: Shape, size: int) -> Shape:
        if one.is_buffer:
            return buffer_shape(self._shape_at(one.elements[0], other.elements[0], size))
        dimensions = tuple(
            [
                self.sizes.extent(*extents, size)
                for extents in zip(one.dimensions, other.dimensions, strict=True)
            ]
        )
        made = Shape(one.element_type, dimensions, one.dynamic, one.layout)
        count = 0 if UNBOUNDED in dimensions else element_count(made)
        if count * made.element_type.byte_width > INT64_MAX:
            raise GrowthError(f"at {size} an array of {made.text_without_layout} is too large")
        return made

    def _check_reshapes(self, made: dict[tuple[Shape, Shape], Shape], size: int) -> None:
        for read, written in self._reshapes:
            if read in made and written in made and all(map(_are_as_many, read, written)):
                source, result = made[read], made[written]
                if not _are_as_many(source, result):
                    texts = f"{source.text_without_layout} to {result.text_without_layout}"
                    problem = f"at {size} a reshape of {texts} would change the number of elements"
                    raise GrowthError(problem)


def _leaves(one: Shape, other: Shape) -> Iterator[tuple[Shape, Shape]]:
    """The arrays of two shapes that differ only in extents."""
    for (_, leaf), (_, its) in zip(one.leaves(), other.leaves(), strict=True):
        if leaf.is_array or leaf.is_buffer:
            yield leaf, its


def _array_of(shape: Shape) -> Shape:
    return shape.elements[0] if shape.is_buffer else shape


def _are_as_many(one: Shape, other: Shape) -> bool:
    if UNBOUNDED in one.dimensions or UNBOUNDED in other.dimensions:
        return one.dimensions == other.dimensions
    return element_count(one) == element_count(other)
