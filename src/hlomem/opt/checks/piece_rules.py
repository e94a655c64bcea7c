"""Rules for operands that are one of n equal parts: they give that part of the result, or a share.

Each rule says it of the operation as the given program has it: `cuts` has for every operand the
dimension along which it is cut, None for a whole one. The answer is a dimension of the result, the
operation that the shares of all parts come to the result by, or None where nothing can be said.
"""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import Shape

Cuts: TypeAlias = "Sequence[int | None]"
Cut: TypeAlias = "int | str | None"
_SAME_PLACES = """
    abs add and atan2 cbrt ceil clamp compare complex convert copy cosine divide erf exponential
    exponential-minus-one floor imag is-finite log log-plus-one logistic maximum minimum multiply
    negate not or popcnt power real reduce-precision remainder round-nearest-afz
    round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign sine
    sqrt subtract tan tanh xor
"""
_ELEMENTWISE = frozenset(_SAME_PLACES.split())
_IDENTITIES = {"add": "0", "maximum": "-inf", "minimum": "inf"}
_SIZES = frozenset({"backend_config", "dynamic_slice_sizes", "slice", "slice_sizes"})
"""Attributes in which sizes may stand."""


def result_cut(one: HloInstruction, cuts: Cuts, numbers: Sequence[str | None]) -> Cut:
    """How the result is cut; `numbers` are those that fill operands, where known."""
    if one.opcode in _ELEMENTWISE:
        return _elementwise(one, cuts)
    if one.opcode == "reduce":
        return _reduce(one, cuts, numbers)
    rule = _RULES.get(one.opcode)
    return None if rule is None else rule(one, cuts)


def identity_of(opcode: str, shape: Shape) -> str | None:
    """The number that changes nothing where it comes first; None for integers' extremes."""
    is_float = shape.element_type.text.startswith(("f", "bf"))
    return _IDENTITIES.get(opcode) if is_float or opcode == "add" else None


def _elementwise(one: HloInstruction, cuts: Cuts) -> Cut:
    found: set[int | None] = set()
    for operand, cut in zip(one.operands, cuts, strict=True):
        if operand.shape.dimensions:
            found.add(cut)
        elif cut is not None:
            return None
    return found.pop() if len(found) == 1 else None


def _reshaped(one: HloInstruction, source: Sequence[int], result: Sequence[int], cut: int) -> Cut:
    """The dimension before which there are as many elements of runs as before the one cut.

    Both lists are dimensions, the outermost first: a part is then the same run of elements.
    """
    given, made = one.operands[0].shape.dimensions, one.shape.dimensions
    before = prod(given[other] for other in source[: source.index(cut)])
    for place, other in enumerate(result):
        if made[other] > 1 and prod(made[earlier] for earlier in result[:place]) == before:
            return other
    return None


def _bitcast(one: HloInstruction, cuts: Cuts) -> Cut:
    [cut], [source] = cuts, one.operands
    if cut is None or source.shape.element_type.bits != one.shape.element_type.bits:
        return None
    layouts = source.shape.layout, one.shape.layout
    if None in layouts or any(layout.tiles for layout in layouts if layout is not None):
        return None
    first, second = (layout.minor_to_major[::-1] for layout in layouts if layout is not None)
    return _reshaped(one, first, second, cut)


def _reshape(one: HloInstruction, cuts: Cuts) -> Cut:
    [cut] = cuts
    if cut is None:
        return None
    return _reshaped(one, range(one.operands[0].shape.rank), range(one.shape.rank), cut)


def _transpose(one: HloInstruction, cuts: Cuts) -> Cut:
    [cut] = cuts
    return None if cut is None else one.integers("dimensions").index(cut)


def _broadcast(one: HloInstruction, cuts: Cuts) -> Cut:
    [cut] = cuts
    return None if cut is None else one.integers("dimensions")[cut]


def _reduce(one: HloInstruction, cuts: Cuts, numbers: Sequence[str | None]) -> Cut:
    count = len(one.operands) // 2
    if len(set(cuts[:count])) != 1 or any(cut is not None for cut in cuts[count:]):
        return None
    cut, gone = cuts[0], one.integers("dimensions")
    if cut is None:
        return None
    if cut not in gone:
        return cut - sum(other < cut for other in gone)
    opcode = _combiner(one)
    if count > 1 or opcode is None or numbers[1] is None:
        return None
    return opcode if numbers[1] == identity_of(opcode, one.shape) else None


def _combiner(one: HloInstruction) -> str | None:
    """The operation that a computation of two numbers is; None for any that is not one of three."""
    [applied] = one.called_computations
    root, parameters = applied.root, applied.parameters
    if root.opcode not in _IDENTITIES or len(parameters) != 2:
        return None
    first, second = root.operands
    is_both = first is not second and first in parameters and second in parameters
    return root.opcode if is_both else None


def _product(one: HloInstruction, cuts: Cuts) -> Cut:
    told = _contraction(one)
    if told is None or len(cuts) != 2:
        return None
    batch, summed = told
    sides = [
        [other for other in range(operand.shape.rank) if other not in (*batch[side], *summed[side])]
        for side, operand in enumerate(one.operands)
    ]
    first, second = cuts
    for side, (cut, other) in enumerate(((first, second), (second, first))):
        if cut in sides[side] and other is None:
            before = len(batch[0]) + (len(sides[0]) if side else 0)
            return before + sides[side].index(cut)
    for pairs, answer in ((batch, None), (summed, "add")):
        for place, pair in enumerate(zip(*pairs, strict=True)):
            if pair == (first, second):
                return place if answer is None else answer
    return None


def _contraction(one: HloInstruction) -> Any:
    """The dimensions of a product that go together, and those that are summed over."""
    if one.opcode == "dot":
        sides = ("lhs", "rhs")
        return (
            [one.integers(f"{side}_batch_dims") for side in sides],
            [one.integers(f"{side}_contracting_dims") for side in sides],
        )
    gemm = _gemm(one)
    if gemm is None or gemm.get("epilogue") != "DEFAULT" or gemm.get("beta") not in (0, None):
        return None
    numbers = gemm["dot_dimension_numbers"]
    return tuple(
        [tuple(map(int, numbers.get(f"{side}_{kind}_dimensions", ()))) for side in ("lhs", "rhs")]
        for kind in ("batch", "contracting")
    )


def _gemm(one: HloInstruction) -> dict[str, Any] | None:
    if one.custom_call_target not in ("__cublas$gemm", "__cublas$lt$matmul"):
        return None
    config: Any = one.backend_config
    return config.get("gemm_backend_config") if isinstance(config, dict) else None


def _kept_size(one: HloInstruction, cuts: Cuts) -> Cut:
    """A dimension along which nothing is taken, added or turned round."""
    arrays = [cut for operand, cut in zip(one.operands, cuts, strict=True) if operand.shape.rank]
    scalars = [
        cut for operand, cut in zip(one.operands, cuts, strict=True) if not operand.shape.rank
    ]
    if len(set(arrays)) != 1 or any(cut is not None for cut in scalars):
        return None
    [cut] = set(arrays)
    if cut is None or cut in one.integers("dimensions") or not _is_unpadded(one, cut):
        return None
    sizes = {operand.shape.dimensions[cut] for operand in one.operands if operand.shape.rank}
    return cut if sizes == {one.shape.dimensions[cut]} else None


def _is_unpadded(one: HloInstruction, cut: int) -> bool:
    padding = one.attributes.get("padding")
    return padding is None or set(padding.split("x")[cut].split("_")) == {"0"}


def _slice(one: HloInstruction, cuts: Cuts) -> Cut:
    [cut] = cuts
    is_whole = cut is not None and one.shape.dimensions[cut] == _sizes(one, 0)[cut]
    return cut if is_whole else None


def _slice_dynamic(one: HloInstruction, cuts: Cuts) -> Cut:
    return None if any(cut is not None for cut in cuts[1:]) else _slice(one, cuts[:1])


def _window(one: HloInstruction, cuts: Cuts) -> Cut:
    if len(cuts) != 2 or cuts[0] is None or cuts[1] is not None:
        return None
    cut = cuts[0]
    parts = dict(part.split("=", 1) for part in one.attributes["window"][1:-1].split())
    plain = {"size": "1", "stride": "1", "pad": "0_0", "lhs_dilate": "1", "rhs_dilate": "1"}
    is_alone = "size" in parts and all(
        parts[name].split("x")[cut] == usual for name, usual in plain.items() if name in parts
    )
    return cut if is_alone and one.shape.dimensions[cut] == _sizes(one, 0)[cut] else None


def _convolution(one: HloInstruction, cuts: Cuts) -> Cut:
    if any(one.attributes.get(f"{kind}_group_count", "1") != "1" for kind in ("feature", "batch")):
        return None
    labels, _, out = one.attributes["dim_labels"].partition("->")
    image, kernel = labels.split("_")
    if tuple(cuts) == (image.index("b"), None):
        return out.index("b")
    return "add" if tuple(cuts) == (image.index("f"), kernel.index("i")) else None


def _sizes(one: HloInstruction, number: int) -> tuple[int, ...]:
    return one.operands[number].shape.dimensions


# Indices.


def gather_cut(one: HloInstruction, cuts: Cuts, local: tuple[int, int] | None) -> Cut:
    """The same of a gather; `local` are the dimension and column of indices made a part's own."""
    source, rows = cuts
    vector = int(one.attributes["index_vector_dim"])
    offsets = one.integers("offset_dims")
    taken = one.integers("slice_sizes")
    if one.integers("operand_batching_dims"):
        return None
    if rows is not None and rows != vector:
        others = [place for place in range(one.shape.rank) if place not in offsets]
        place = others[rows - (rows > vector)]
        if local is None:
            return place if source is None else None
        target = one.integers("start_index_map")[local[1]]
        is_own = local[0] == vector and target == source and taken[target] == 1
        return place if is_own else None
    gone = one.integers("collapsed_slice_dims")
    if rows is None and source is not None and source not in gone:
        if taken[source] != _sizes(one, 0)[source]:
            return None
        return offsets[source - sum(other < source for other in gone)]
    return None


def scatter_cut(
    one: HloInstruction, cuts: Cuts, local: tuple[int, int] | None, filled: str | None
) -> Cut:
    """The same of a scatter into something that may be filled with one number."""
    if len(cuts) != 3 or one.integers("input_batching_dims"):
        return None
    source, rows, update = cuts
    vector = int(one.attributes["index_vector_dim"])
    windows = one.integers("update_window_dims")
    inserted = one.integers("inserted_window_dims")
    targets = one.integers("scatter_dims_to_operand_dims")
    left = [place for place in range(one.shape.rank) if place not in inserted]
    if rows is None:
        if source is None or source in targets or source in inserted:
            return None
        place = windows[left.index(source)]
        is_whole = _sizes(one, 2)[place] == _sizes(one, 0)[source]
        return source if update == place and is_whole else None
    others = [place for place in range(len(_sizes(one, 2))) if place not in windows]
    if rows == vector or update != others[rows - (rows > vector)]:
        return None
    if local is None:
        is_sum = source is None and filled == "0" and _combiner(one) == "add"
        return "add" if is_sum else None
    target = targets[local[1]]
    if local[0] != vector or target != source:
        return None
    is_one = target in inserted or _sizes(one, 2)[windows[left.index(target)]] == 1
    return target if is_one else None


_RULES: Mapping[str, Callable[[HloInstruction, Cuts], Cut]] = {
    "bitcast": _bitcast,
    "broadcast": _broadcast,
    "concatenate": _kept_size,
    "convolution": _convolution,
    "custom-call": _product,
    "dot": _product,
    "dynamic-slice": _slice_dynamic,
    "dynamic-update-slice": _kept_size,
    "pad": _kept_size,
    "reduce-window": _window,
    "reshape": _reshape,
    "reverse": _kept_size,
    "slice": _slice,
    "transpose": _transpose,
}


# Attributes.


def has_attributes(part: HloInstruction, one: HloInstruction, cuts: Cuts, pieces: int) -> bool:
    """Whether an instruction says what another does, but for sizes, and those are a part's."""
    now, then = (
        {name: text for name, text in made.attributes.items() if name not in _LEFT_OUT}
        for made in (part, one)
    )
    for name in _SIZES & (now.keys() | then.keys()):
        check = _CHECKS.get((part.opcode, name))
        texts = now.pop(name, ""), then.pop(name, "")
        is_right = texts[0] == texts[1] if check is None else check(part, one, cuts, pieces)
        if not is_right:
            return False
    return now == then and part.payload == one.payload


_LEFT_OUT = frozenset({"metadata", "to_apply", "calls", "called_computations"})


def _check_slice(part: HloInstruction, one: HloInstruction, cuts: Cuts, pieces: int) -> bool:
    """All of the part where all was taken, the same range elsewhere."""
    now, then = (made.attributes["slice"][1:-1].split(", ") for made in (part, one))
    if cuts[0] is None or len(now) != len(then):
        return now == then
    size = _sizes(one, 0)[cuts[0]]
    wanted = list(then)
    if then[cuts[0]] not in (f"[0:{size}]", f"[0:{size}:1]"):
        return False
    wanted[cuts[0]] = f"[0:{size // pieces}]"
    return [text.replace(":1]", "]") if text.count(":") == 2 else text for text in now] == [
        text.replace(":1]", "]") if text.count(":") == 2 else text for text in wanted
    ]


def _check_taken(part: HloInstruction, one: HloInstruction, cuts: Cuts, pieces: int) -> bool:
    name = "slice_sizes" if one.opcode == "gather" else "dynamic_slice_sizes"
    now, then = list(part.integers(name)), list(one.integers(name))
    if cuts[0] is not None and then[cuts[0]] == _sizes(one, 0)[cuts[0]]:
        then[cuts[0]] //= pieces
    return now == then


def _check_gemm(part: HloInstruction, one: HloInstruction, cuts: Cuts, pieces: int) -> bool:
    """The same product; the algorithm is one that any sizes have, strides are those of the part."""
    now, then = (json.loads(made.attributes["backend_config"]) for made in (part, one))
    new, old = now.pop("gemm_backend_config"), then.pop("gemm_backend_config")
    default = {"__cublas$gemm": "-1", "__cublas$lt$matmul": "0"}[one.custom_call_target or ""]
    if str(new.pop("selected_algorithm", "")) != default:
        return False
    old.pop("selected_algorithm", None)
    for side, cut in zip(("lhs", "rhs"), cuts, strict=True):
        batch = old["dot_dimension_numbers"].get(f"{side}_batch_dimensions", ())
        was, is_now = old.pop(f"{side}_stride", "0"), new.pop(f"{side}_stride", "0")
        is_smaller = cut is not None and str(cut) not in map(str, batch)
        if int(is_now) * (pieces if is_smaller else 1) != int(was):
            return False
    return bool(now == then and new == old)


def _check_offset(part: HloInstruction, _: HloInstruction, __: Cuts, ___: int) -> bool:
    """No annotation of a slice that is about the loop it was in."""
    return "backend_config" not in part.attributes


_CHECKS: Mapping[tuple[str, str], Callable[[HloInstruction, HloInstruction, Cuts, int], bool]] = {
    ("slice", "slice"): _check_slice,
    ("dynamic-slice", "dynamic_slice_sizes"): _check_taken,
    ("gather", "slice_sizes"): _check_taken,
    ("custom-call", "backend_config"): _check_gemm,
    ("dynamic-slice", "backend_config"): _check_offset,
    ("dynamic-update-slice", "backend_config"): _check_offset,
}
