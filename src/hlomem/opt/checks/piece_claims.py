"""Claims about values in the i-th pass of a loop over n pieces, each of which is true.

part    the i-th of n equal parts of a term along a dimension; all of it where there is none
share   what the i-th parts contribute to a term: all passes' come to it by an operation
wide    the same, converted to a wider type
count   a·i + b, everywhere
flag    true or false
column  the number of the column along a dimension
which   whether it is a certain column
less    a·i in a certain column, 0 in others
local   indices, the i-th of n parts, that count from a·i on in a certain column
state   an element of the loop's state before the pass
written an element of the state with the i-th part of a term where that belongs
added   an element of the state with a share of a term added
"""

from __future__ import annotations

from itertools import islice, product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from hlomem.opt.checks.piece_indices import counts_along
from hlomem.opt.checks.piece_rules import gather_cut, has_attributes, result_cut, scatter_cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.opt.checks.piece_rules import Cut
    from hlomem.opt.checks.piece_terms import Terms, Value


class Claim(NamedTuple):
    kind: str
    about: tuple[Any, ...]


Claims: TypeAlias = "frozenset[Claim]"
Known: TypeAlias = "Claims | tuple[Known, ...]"
"""Claims about an array, or about the elements of a tuple."""
Rest: Claims = frozenset()
_MAX_CHOICES = 64
"""Choices of one claim for each operand that are looked at."""
_SIGNS = {"add": 1, "subtract": -1}
_HANDED_ON = ("bitcast", "broadcast", "copy", "reshape")
_SUMS = ("add", "maximum", "minimum")


def Part(term: int, cut: int | None = None) -> Claim:  # noqa: N802 - reads as the claim it makes
    return Claim("part", (term, cut))


class Prover:
    def __init__(self, terms: Terms, pieces: int) -> None:
        self._terms = terms
        self._pieces = pieces

    def run(self, computation: HloComputation, arguments: Sequence[Known]) -> Known:
        known: dict[HloInstruction, Known] = dict(
            zip(computation.parameters, arguments, strict=True)
        )
        for one in computation.instructions:
            if one.opcode != "parameter":
                known[one] = self._of(one, [known[operand] for operand in one.operands])
        return known[computation.root]

    def _of(self, one: HloInstruction, operands: list[Known]) -> Known:
        if one.opcode == "tuple":
            return tuple(operands)
        if one.opcode == "get-tuple-element":
            whole = operands[0]
            return whole[one.tuple_index] if isinstance(whole, tuple) else Rest
        if one.opcode == "fusion":
            return self.run(one.called_computations[0], operands)
        plain = [claims for claims in operands if isinstance(claims, frozenset)]
        if len(plain) < len(operands) or one.control_predecessors:
            return Rest
        if one.shape.is_tuple:
            return self._tuple(one, plain)
        return frozenset(
            (*self._counted(one, plain), *self._stored(one, plain), *self._made(one, plain))
        )

    # Numbers.

    def _counted(self, one: HloInstruction, operands: list[Claims]) -> Iterator[Claim]:
        """Claims about integers that are known, and where a piece begins."""
        opcode = one.opcode
        if opcode == "constant" and not one.shape.dimensions:
            text = one.payload.strip()
            if text.removeprefix("-").isdecimal():
                yield Claim("count", (0, int(text)))
        elif opcode == "iota":
            yield Claim("column", (int(one.attributes["iota_dimension"]),))
        elif opcode in _HANDED_ON:
            yield from _of_kind(operands[0], "count")
        for claims in islice(product(*operands), _MAX_CHOICES):
            yield from self._combined(one, claims)

    def _combined(self, one: HloInstruction, claims: tuple[Claim, ...]) -> Iterator[Claim]:
        kinds, about = tuple(claim.kind for claim in claims), [claim.about for claim in claims]
        opcode = one.opcode
        if kinds == ("count", "count"):
            (slope, begin), (other, more) = about
            if opcode in _SIGNS:
                sign = _SIGNS[opcode]
                yield Claim("count", (slope + sign * other, begin + sign * more))
            elif opcode == "multiply" and 0 in (slope, other):
                yield Claim("count", (slope * more + other * begin, begin * more))
            elif opcode == "compare" and slope == other == 0:
                is_less = one.attributes.get("direction") == "LT"
                yield from [Claim("flag", (begin < more,))] if is_less else []
        elif kinds == ("column", "count") and opcode == "compare" and about[1][0] == 0:
            if one.attributes.get("direction") == "EQ":
                yield Claim("which", (about[0][0], about[1][1]))
        elif kinds == ("which", "count", "count") and opcode == "select":
            if about[1][1] == 0 and about[2] == (0, 0):
                yield Claim("less", (*about[0], about[1][0]))
        elif kinds == ("part", "less") and opcode == "subtract" and about[0][1] is not None:
            yield Claim("local", (*about[0], *about[1]))

    # The loop's state.

    def _stored(self, one: HloInstruction, operands: list[Claims]) -> Iterator[Claim]:
        if one.opcode == "dynamic-update-slice":
            yield from self._written(one, operands)
        elif one.opcode == "dynamic-slice":
            yield from self._sliced(one, operands)
        elif one.opcode in _SUMS:
            for first, second in (operands, operands[::-1]):
                for state, share in product(_of_kind(first, "state"), second):
                    if share.kind in ("share", "wide") and share.about[1] == one.opcode:
                        yield Claim("added", (*state.about, *share.about))
        elif one.opcode == "convert":
            for share in _of_kind(operands[0], "share"):
                if share.about[1] == "add" and one.shape.element_type.text == "f32":
                    yield Claim("wide", share.about)

    def _written(self, one: HloInstruction, operands: list[Claims]) -> Iterator[Claim]:
        state, update, *places = operands
        for part in _of_kind(update, "part"):
            term, cut = part.about
            shape = self._terms.terms[term].shape
            if cut is None or not _is_array(one.shape, shape):
                continue
            if self._is_at(places, one.operands[1].shape, cut):
                yield from (Claim("written", (*at.about, term)) for at in _of_kind(state, "state"))

    def _sliced(self, one: HloInstruction, operands: list[Claims]) -> Iterator[Claim]:
        whole, *places = operands
        for part in _of_kind(whole, "part"):
            term, cut = part.about
            if cut is not None:
                continue
            shape = self._terms.terms[term].shape
            for place in range(shape.rank):
                is_part = self._is_part(one.shape, shape, place)
                if is_part and self._is_at(places, one.shape, place):
                    yield Part(term, place)

    def _is_at(self, places: list[Claims], part: Shape, cut: int) -> bool:
        """Whether something begins where the i-th part does."""
        return all(
            Claim("count", (part.dimensions[number], 0) if number == cut else (0, 0)) in place
            for number, place in enumerate(places)
        )

    def _is_part(self, part: Shape, whole: Shape, cut: Cut) -> bool:
        """Whether a shape is that of a part, in the layout of the whole."""
        sizes = list(part.dimensions)
        if not isinstance(cut, int):
            return _is_array(part, whole)
        if len(sizes) != whole.rank or part.element_type is not whole.element_type:
            return False
        sizes[cut] *= self._pieces
        return tuple(sizes) == whole.dimensions and _has_layout(part, whole)

    # Values of the program.

    def _made(self, one: HloInstruction, operands: list[Claims]) -> Iterator[Claim]:
        for _, value, cut in self._matches(one, operands):
            if isinstance(value, int) and self._is_part(
                one.shape, self._terms.terms[value].shape, cut
            ):
                yield Claim("share", (value, cut)) if isinstance(cut, str) else Part(value, cut)
        if one.opcode in ("bitcast", "copy", "reshape", "transpose"):
            yield from self._moved(one, operands[0])

    def _moved(self, one: HloInstruction, claims: Claims) -> Iterator[Claim]:
        """A share whose elements are moved is a share of what is moved so."""
        for share in _of_kind(claims, "share"):
            for number, _ in self._terms.made_of(one.opcode, (share.about[0],)):
                made = self._terms.terms[number]
                assert made.instruction is not None
                is_same = has_attributes(one, made.instruction, [None], 1)
                if is_same and _is_array(one.shape, made.shape):
                    yield Claim("share", (number, share.about[1]))

    def _tuple(self, one: HloInstruction, operands: list[Claims]) -> Known:
        """A library call: its first result, of its workspace nothing."""
        found: list[Claim] = []
        for number, _, cut in self._matches(one, operands):
            if self._is_part(one.shape.elements[0], self._terms.terms[number].shape, cut):
                found.append(
                    Claim("share", (number, cut)) if isinstance(cut, str) else Part(number, cut)
                )
        return (frozenset(found), *[Rest] * (len(one.shape.elements) - 1))

    def _matches(
        self, one: HloInstruction, operands: list[Claims]
    ) -> Iterator[tuple[int, Value, Cut]]:
        """Terms of the program that an instruction computes a part of, and how it is cut."""
        usable = [
            [claim for claim in claims if claim.kind in ("part", "local")] for claims in operands
        ]
        for claims in islice(product(*usable), _MAX_CHOICES):
            terms = tuple([claim.about[0] for claim in claims])
            cuts = [claim.about[1] for claim in claims]
            is_whole = all(cut is None for cut in cuts)
            if is_whole:
                value = self._terms.operation(one, terms)
                first = value[0] if isinstance(value, tuple) else value
                if isinstance(first, int):
                    yield first, value, None
            for number, value in self._terms.made_of(one.opcode, terms):
                made = self._terms.terms[number]
                cut = self._cut(one, made.instruction, claims, is_whole=is_whole)
                if cut is not None:
                    yield number, value, cut

    def _cut(
        self,
        one: HloInstruction,
        made: HloInstruction | None,
        claims: tuple[Claim, ...],
        *,
        is_whole: bool,
    ) -> Cut:
        """How what an instruction computes is a part of what another of the program does."""
        cuts = [claim.about[1] for claim in claims]
        if made is None or not has_attributes(one, made, cuts, self._pieces):
            return None
        if self._terms.bodies(one) != self._terms.bodies(made):
            return None
        locals_ = [number for number, claim in enumerate(claims) if claim.kind == "local"]
        if made.opcode in ("gather", "scatter"):
            return self._indexed(made, cuts, claims)
        if locals_:
            return None
        if is_whole:
            return _spread(one, made) if made.opcode == "broadcast" else None
        terms = [claim.about[0] for claim in claims]
        return result_cut(made, cuts, [self._terms.number_in(term) for term in terms])

    def _indexed(
        self, made: HloInstruction, cuts: list[int | None], claims: tuple[Claim, ...]
    ) -> Cut:
        """The same of a gather or scatter, whose indices may count within the piece."""
        if any(claim.kind == "local" for claim in (claims[0], *claims[2:])):
            return None
        local: tuple[int, int] | None = None
        if claims[1].kind == "local":
            term, rows, vector, column, begin = claims[1].about
            source = made.operands[0].shape
            target = made.integers(
                "start_index_map" if made.opcode == "gather" else "scatter_dims_to_operand_dims"
            )[column]
            counted = counts_along(self._terms, term, rows, vector, column)
            is_right = counted == source.dimensions[target] == begin * self._pieces
            if not is_right:
                return None
            local = vector, column
        if made.opcode == "gather":
            return gather_cut(made, cuts, local)
        filled = self._terms.number_in(claims[0].about[0])
        return scatter_cut(made, cuts, local, filled)


def _spread(one: HloInstruction, made: HloInstruction) -> Cut:
    """The only dimension that is smaller, if it is one along which all is the same."""
    sizes = zip(one.shape.dimensions, made.shape.dimensions, strict=False)
    smaller = [place for place, (now, then) in enumerate(sizes) if now != then]
    is_free = len(smaller) == 1 and smaller[0] not in made.integers("dimensions")
    return smaller[0] if is_free and one.shape.rank == made.shape.rank else None


def _of_kind(claims: Claims, kind: str) -> list[Claim]:
    return sorted((claim for claim in claims if claim.kind == kind), key=repr)


def _is_array(one: Shape, other: Shape) -> bool:
    same = one.dimensions == other.dimensions and one.element_type is other.element_type
    return same and _has_layout(one, other)


def _has_layout(one: Shape, other: Shape) -> bool:
    return one.layout == other.layout or not one.dimensions
