"""Links between dimensions of operands and results, opcode by opcode.

A link says: if these operands are given as the i-th of n equal parts along these dimensions, others
whole, the instruction computes the i-th part of its result along that one, or a share of it, and
the shares of all parts come to the whole by an operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from hlomem.hlo.counting_indices import counts_along
from hlomem.hlo.library_calls import is_library_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hlomem.hlo.counting_indices import Scope
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape


class Share(NamedTuple):
    """A result of which every piece computes a share."""

    opcode: Opcode
    """The operation that all shares come to the whole by."""


Cut: TypeAlias = "int | Share | None"
"""The dimension a value is cut along; None for a whole one."""


class Link(NamedTuple):
    operands: tuple[int | None, ...]
    results: tuple[Cut, ...]
    """Of a tuple, by element."""
    column: int | None = None
    """The column of the indices of a gather or scatter that counts within the piece."""


_ELEMENTWISE = """
    abs add and atan2 cbrt ceil clamp compare complex convert copy cosine divide erf exponential
    exponential-minus-one floor imag is-finite log log-plus-one logistic maximum minimum multiply
    negate not or popcnt power real reduce-precision remainder round-nearest-afz
    round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign sine
    sqrt subtract tan tanh xor
"""
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
SHARED_BY = frozenset({"add", "maximum", "minimum"})
SLICED = frozenset({"constant", "iota"})
"""Opcodes of what has no operands, and is made whole and sliced."""


def links_of(instruction: HloInstruction, scope: Scope) -> Iterator[Link]:
    """All links of an instruction other than a fusion, for dimensions of more than one element."""
    opcode = instruction.opcode
    if not _is_plain(instruction):
        return
    if opcode in ELEMENTWISE:
        rank = instruction.shape.rank
        ranks = [operand.shape.rank for operand in instruction.operands]
        for one in range(rank):
            yield Link(tuple([one if of == rank else None for of in ranks]), (one,))
    elif opcode in SLICED:
        yield from (Link((), (one,)) for one in range(instruction.shape.rank))
    elif opcode in ("gather", "scatter"):
        yield from (_gather if opcode == "gather" else _scatter)(instruction, scope)
    elif opcode in _RULES:
        yield from _RULES[opcode](instruction)


def _is_plain(instruction: HloInstruction) -> bool:
    """Whether all arrays are static and in no tiles."""
    shapes = [instruction.shape, *(operand.shape for operand in instruction.operands)]
    return all(
        not any(leaf.dynamic) and (leaf.layout is None or not leaf.layout.tiles)
        for shape in shapes
        for _, leaf in shape.leaves()
    )


def combiner_of(computation: HloComputation) -> Opcode | None:
    """The operation that a computation of two scalars is; None where it is not one of those."""
    root = computation.root
    if root.opcode not in SHARED_BY or set(root.operands) != set(computation.parameters):
        return None
    return root.opcode if len(computation.parameters) == 2 else None


def _shared(instruction: HloInstruction, opcode: Opcode | None) -> tuple[Cut, ...] | None:
    """The result of an instruction as shares."""
    if opcode is None:
        return None
    return (Share(opcode), *[None] * (len(instruction.shape.elements) - 1))


# Opcodes that move elements.


def groups(one: Sequence[int], other: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of positions in two lists of sizes, each the first of a part with the same product."""
    first = second = 0
    while first < len(one) and second < len(other):
        if one[first] == 1 or other[second] == 1:
            first, second = first + (one[first] == 1), second + (other[second] == 1)
            continue
        yield first, second
        left, right = one[first], other[second]
        first, second = first + 1, second + 1
        while left != right:
            if left < right and first < len(one):
                left, first = left * one[first], first + 1
            elif left > right and second < len(other):
                right, second = right * other[second], second + 1
            else:
                return


def _in_memory(shape: Shape) -> list[int]:
    """The dimensions of an array, the outermost in memory first."""
    if shape.layout is None:
        return list(range(shape.rank))
    return list(reversed(shape.layout.minor_to_major))


def _bitcast(instruction: HloInstruction) -> Iterator[Link]:
    [source] = instruction.operands
    if source.shape.element_type.bits != instruction.shape.element_type.bits:
        return
    yield from _regrouped(instruction, _in_memory(source.shape), _in_memory(instruction.shape))


def _reshape(instruction: HloInstruction) -> Iterator[Link]:
    [source] = instruction.operands
    yield from _regrouped(instruction, range(source.shape.rank), range(instruction.shape.rank))


def _regrouped(
    instruction: HloInstruction, first: Sequence[int], second: Sequence[int]
) -> Iterator[Link]:
    source = instruction.operands[0].shape.dimensions
    result = instruction.shape.dimensions
    pairs = groups([source[one] for one in first], [result[one] for one in second])
    for one, other in pairs:
        yield Link((first[one],), (second[other],))


def _transpose(instruction: HloInstruction) -> Iterator[Link]:
    for place, source in enumerate(instruction.integers("dimensions")):
        yield Link((source,), (place,))


def _broadcast(instruction: HloInstruction) -> Iterator[Link]:
    places = instruction.integers("dimensions")
    sizes = instruction.operands[0].shape.dimensions
    for one in range(instruction.shape.rank):
        if one not in places:
            yield Link((None,), (one,))
        elif sizes[places.index(one)] == instruction.shape.dimensions[one]:
            yield Link((places.index(one),), (one,))


def _same_sizes(instruction: HloInstruction) -> Iterator[Link]:
    """Dimensions that keep their size where parts are taken, added or replaced."""
    whole = instruction.operands[0].shape
    if instruction.opcode == "dynamic-update-slice":
        whole = instruction.operands[1].shape
    touched = set(instruction.integers("dimensions"))
    padding = instruction.attributes.get("padding", "").split("x")
    for one, size in enumerate(instruction.shape.dimensions):
        is_padded = padding != [""] and padding[one] not in ("0_0", "0_0_0")
        if size == whole.dimensions[one] and one not in touched and not is_padded:
            ranks = [operand.shape.rank for operand in instruction.operands]
            yield Link(tuple([one if rank else None for rank in ranks]), (one,))


def _slice(instruction: HloInstruction) -> Iterator[Link]:
    sizes = instruction.operands[0].shape.dimensions
    for one, size in enumerate(instruction.shape.dimensions):
        if size == sizes[one]:
            yield Link((one,), (one,))


# Opcodes that compute.


def _reduce(instruction: HloInstruction) -> Iterator[Link]:
    gone = instruction.integers("dimensions")
    rank = instruction.operands[0].shape.rank
    count = len(instruction.operands) // 2
    kept = [one for one in range(rank) if one not in gone]
    for place, one in enumerate(kept):
        yield Link((one,) * count + (None,) * count, (place,) * count)
    opcode = combiner_of(instruction.called_computations[0])
    results = _shared(instruction, opcode if count == 1 else None)
    if results is not None and is_identity(instruction.operands[1], results[0]):
        yield from (Link((one, None), results) for one in gone)


def is_identity(initial: HloInstruction, share: Cut) -> bool:
    """Whether a reduction begins with what changes nothing."""
    if initial.opcode != "constant" or not isinstance(share, Share):
        return False
    return initial.payload.strip() == identity_of(share.opcode, initial.shape)


def identity_of(opcode: str, shape: Shape) -> str | None:
    """The number that an operation leaves all others as they are with."""
    if opcode == "add":
        return "0"
    if not shape.element_type.text.startswith(("f", "bf")):
        return None
    return "-inf" if opcode == "maximum" else "inf"


def _window(instruction: HloInstruction) -> Iterator[Link]:
    window = dict(part.split("=", 1) for part in instruction.attributes["window"][1:-1].split())
    if len(instruction.operands) != 2 or window.keys() - {"size", "stride", "pad"}:
        return
    for one in range(instruction.shape.rank):
        parts = [window[name].split("x")[one] for name in sorted(window)]
        if set(parts) <= {"1", "0_0"}:
            yield Link((one, None), (one,))


class Contraction(NamedTuple):
    """The dimensions of a product of two arrays."""

    batch: tuple[tuple[int, ...], tuple[int, ...]]
    summed: tuple[tuple[int, ...], tuple[int, ...]]


def contraction_of(instruction: HloInstruction) -> Contraction | None:
    """The dimensions of a product; None for others, and where it does more."""
    if instruction.opcode == "dot":
        names = ("lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims")
        numbers = [instruction.integers(name) for name in names]
        return Contraction((numbers[0], numbers[1]), (numbers[2], numbers[3]))
    config = gemm_config(instruction)
    if config is None or config.get("epilogue", "DEFAULT") != "DEFAULT" or config.get("beta", 0):
        return None
    if len(instruction.operands) != 2:
        return None
    told = config.get("dot_dimension_numbers", {})
    names = ("lhs_batch", "rhs_batch", "lhs_contracting", "rhs_contracting")
    numbers = [tuple(map(int, told.get(f"{name}_dimensions", ()))) for name in names]
    return Contraction((numbers[0], numbers[1]), (numbers[2], numbers[3]))


def gemm_config(instruction: HloInstruction) -> dict[str, Any] | None:
    """The settings of a call of cuBLAS; None for other instructions."""
    targets = ("__cublas$gemm", "__cublas$lt$matmul")
    if instruction.custom_call_target not in targets or not is_library_call(instruction):
        return None
    config = instruction.backend_config
    found = config.get("gemm_backend_config") if isinstance(config, dict) else None
    return found if isinstance(found, dict) else None


def _product(instruction: HloInstruction) -> Iterator[Link]:
    contraction = contraction_of(instruction)
    if contraction is None:
        return
    (first, second), summed = contraction.batch, contraction.summed
    rest = [None] * (len(instruction.shape.elements) - 1)
    lhs, rhs = (operand.shape.rank for operand in instruction.operands)
    place = 0
    for one, other in zip(first, second, strict=True):
        yield Link((one, other), (place, *rest))
        place += 1
    for one in range(lhs):
        if one not in (*first, *summed[0]):
            yield Link((one, None), (place, *rest))
            place += 1
    for other in range(rhs):
        if other not in (*second, *summed[1]):
            yield Link((None, other), (place, *rest))
            place += 1
    results = _shared(instruction, "add")
    if results is not None:
        yield from (Link((one, other), results) for one, other in zip(*summed, strict=True))


def _convolution(instruction: HloInstruction) -> Iterator[Link]:
    counts = ("feature_group_count", "batch_group_count")
    if any(instruction.attributes.get(name, "1") != "1" for name in counts):
        return
    labels, _, out = instruction.attributes["dim_labels"].partition("->")
    image, kernel = labels.split("_")
    yield Link((image.index("b"), None), (out.index("b"),))
    results = _shared(instruction, "add")
    if results is not None:
        yield Link((image.index("f"), kernel.index("i")), results)


# Opcodes with indices.


def _gather(instruction: HloInstruction, scope: Scope) -> Iterator[Link]:
    source, indices = instruction.operands
    vector = int(instruction.attributes["index_vector_dim"])
    offsets = instruction.integers("offset_dims")
    sizes = instruction.integers("slice_sizes")
    gone = (
        *instruction.integers("collapsed_slice_dims"),
        *instruction.integers("operand_batching_dims"),
    )
    rows = [one for one in range(indices.shape.rank) if one != vector]
    places = [one for one in range(instruction.shape.rank) if one not in offsets]
    if instruction.integers("operand_batching_dims"):
        return
    for row, place in zip(rows, places, strict=True):
        targets = instruction.integers("start_index_map")
        counted = _counted(targets, instruction, row, vector, scope)
        counted = [(one, column) for one, column in counted if sizes[one] == 1]
        yield from (Link((one, row), (place,), column) for one, column in counted)
        if not counted:
            yield Link((None, row), (place,))
    windows = [one for one in range(source.shape.rank) if one not in gone]
    for one, place in zip(windows, offsets, strict=True):
        if sizes[one] == source.shape.dimensions[one]:
            yield Link((one, None), (place,))


def _counted(
    targets: Sequence[int], instruction: HloInstruction, row: int, vector: int, scope: Scope
) -> list[tuple[int, int]]:
    """The dimensions that a column of the indices counts along their rows, and that column."""
    source, indices = instruction.operands[:2]
    if vector >= indices.shape.rank:
        return []
    return [
        (target, column)
        for column, target in enumerate(targets)
        if counts_along(indices, row, vector, column, scope) == source.shape.dimensions[target]
    ]


def _scatter(instruction: HloInstruction, scope: Scope) -> Iterator[Link]:
    if len(instruction.operands) != 3 or instruction.integers("input_batching_dims"):
        return
    source, indices, updates = instruction.operands
    vector = int(instruction.attributes["index_vector_dim"])
    windows = instruction.integers("update_window_dims")
    inserted = instruction.integers("inserted_window_dims")
    targets = instruction.integers("scatter_dims_to_operand_dims")
    rows = [one for one in range(indices.shape.rank) if one != vector]
    places = [one for one in range(updates.shape.rank) if one not in windows]
    left = [one for one in range(source.shape.rank) if one not in inserted]
    window_of = dict(zip(left, windows, strict=True))
    combiner = combiner_of(instruction.called_computations[0])
    for row, place in zip(rows, places, strict=True):
        counted = [
            (one, column)
            for one, column in _counted(targets, instruction, row, vector, scope)
            if one in inserted or updates.shape.dimensions[window_of[one]] == 1
        ]
        yield from (Link((one, row, place), (one,), column) for one, column in counted)
        if not counted and combiner == "add" and scope.is_zero(source):
            results = _shared(instruction, "add")
            if results is not None:
                yield Link((None, row, place), results)
    for one, place in window_of.items():
        is_whole = updates.shape.dimensions[place] == source.shape.dimensions[one]
        if is_whole and one not in targets:
            yield Link((one, None, place), (one,))


_RULES: Mapping[str, Callable[[HloInstruction], Iterator[Link]]] = {
    "bitcast": _bitcast,
    "broadcast": _broadcast,
    "concatenate": _same_sizes,
    "convolution": _convolution,
    "custom-call": _product,
    "dot": _product,
    "dynamic-slice": _same_sizes,
    "dynamic-update-slice": _same_sizes,
    "pad": _same_sizes,
    "reduce": _reduce,
    "reduce-window": _window,
    "reshape": _reshape,
    "reverse": _same_sizes,
    "slice": _slice,
    "transpose": _transpose,
}
