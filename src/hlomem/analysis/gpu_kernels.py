"""The kernels emitted for GPU fusions, as far as buffer sharing depends on them.

A root's hero is the reduction or transpose that its kernel is built around. Mirrors
`service/gpu/hlo_fusion_analysis.cc`, `reduction_utils.cc` and `FindNonTrivialHero` of
`ir_emission_utils.cc`.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.analysis.alias_rules import is_elementwise
from hlomem.hlo.padding import element_count
from hlomem.hlo.shape import Shape, default_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hlomem.hlo.ir import HloInstruction

_WARP_SIZE = 32
_SHARED_MEMORY_BANKS = 32
_BANK_BITS = 32


class FusionAnalysis(NamedTuple):
    roots: Sequence[HloInstruction]
    heroes: Sequence[HloInstruction]
    """The hero of each root; by default the root itself."""
    reduction: HloInstruction | None
    """The reduction that a reduction kernel computes before it writes anything."""


def analyze_fusion(fusion: HloInstruction) -> FusionAnalysis:
    """Find the heroes of a fusion (`HloFusionAnalysis::Create`)."""
    root = fusion.called_computations[0].root
    roots = root.operands if root.opcode == "tuple" else (root,)
    heroes = [_find_hero(root) for root in roots]
    if _has_own_emitter(fusion):
        return FusionAnalysis(roots, heroes, None)
    pairs = zip(roots, heroes, strict=True)
    reduction = next((hero for root, hero in pairs if _is_real_reduction(root, hero)), None)
    if reduction is not None and _reductions_agree(roots, heroes, reduction):
        return FusionAnalysis(roots, heroes, reduction)
    if not _transposes_agree(roots, heroes):
        heroes = list(roots)
    return FusionAnalysis(roots, heroes, None)


def _has_own_emitter(fusion: HloInstruction) -> bool:
    """Whether the configuration names an emitter: Triton, cuDNN, a custom kernel."""
    config = fusion.backend_config
    fusion_config = config.get("fusion_backend_config") if isinstance(config, dict) else None
    return isinstance(fusion_config, dict) and bool(fusion_config.get("kind"))


def _find_hero(root: HloInstruction) -> HloInstruction:
    """`FindNonTrivialHero`."""
    hero = root
    while _is_intermediate(hero, 1) and hero.operands[0].opcode != "parameter":
        hero = hero.operands[0]
    found = _only_hero(hero, _is_tiled_transpose) or _only_hero(
        hero, lambda instruction: instruction.opcode == "concatenate"
    )
    if found is not None:
        return found
    return hero if hero.opcode == "reduce" else root


def _is_intermediate(instruction: HloInstruction, operand_limit: int) -> bool:
    operands = instruction.operands
    if not 0 < len(operands) <= operand_limit:
        return False
    if instruction.opcode == "copy":
        return instruction.shape == operands[0].shape
    return instruction.opcode == "bitcast" or is_elementwise(instruction)


def _only_hero(
    root: HloInstruction, is_hero: Callable[[HloInstruction], bool]
) -> HloInstruction | None:
    """The only hero above a root, if all its users are intermediate (`FindHero`)."""
    above = _reach([root], lambda instruction: instruction.operands, is_hero)
    heroes = [instruction for instruction in above if is_hero(instruction)]
    if len(heroes) != 1:
        return None
    below = _reach(heroes[0].users, lambda instruction: instruction.users, lambda _: False)
    is_only = all(user.opcode == "tuple" or _is_intermediate(user, 3) for user in below)
    return heroes[0] if is_only else None


def _reach(
    start: Iterable[HloInstruction],
    neighbours: Callable[[HloInstruction], Iterable[HloInstruction]],
    stops_at: Callable[[HloInstruction], bool],
) -> list[HloInstruction]:
    """The instructions reached through intermediate operations, the last ones included."""
    reached = dict.fromkeys(start)
    pending = list(reached)
    while pending:
        instruction = pending.pop()
        if stops_at(instruction) or not _is_intermediate(instruction, 3):
            continue
        for neighbour in neighbours(instruction):
            if neighbour not in reached:
                reached[neighbour] = None
                pending.append(neighbour)
    return list(reached)


# Reductions.


class Reduction(NamedTuple):
    """A reduction as a matrix: rows or columns, and sizes from major to minor."""

    is_row: bool
    sizes: tuple[int, int, int]


def _reductions_agree(
    roots: Sequence[HloInstruction], heroes: Sequence[HloInstruction], reduction: HloInstruction
) -> bool:
    """Whether one reduction kernel can compute all roots (`GetEmitterFusionKind`)."""
    for root, hero in zip(roots, heroes, strict=True):
        if root is reduction:
            continue
        if not _is_real_reduction(root, hero):
            if element_count(root.shape) != element_count(reduction.operands[0].shape):
                return False
        elif _reduction(hero) != _reduction(reduction):
            return False
    return True


def _is_real_reduction(root: HloInstruction, hero: HloInstruction) -> bool:
    """Whether a reduction gets a reduction kernel (`IsRealReductionHero`)."""
    if hero.opcode != "reduce":
        return False
    shape = hero.operands[0].shape
    kept, reduced = _split_dimensions(hero)
    if not (_are_consecutive(shape, kept) or _are_consecutive(shape, reduced)):
        return False
    reduction = _reduction(hero)
    return _beats_elemental(reduction) and (root is hero or _is_race_free(reduction))


def _split_dimensions(reduce: HloInstruction) -> tuple[Sequence[int], Sequence[int]]:
    """The dimensions that a reduction keeps, and those it reduces."""
    reduced = reduce.integers("dimensions")
    return [i for i in range(reduce.operands[0].shape.rank) if i not in reduced], reduced


def _reduction(reduce: HloInstruction) -> Reduction:
    """`GetReductionKindAndContiguousComponents`."""
    shape = reduce.operands[0].shape
    kept, reduced = _split_dimensions(reduce)
    if not kept:
        return Reduction(True, (1, 1, element_count(shape)))
    if _are_consecutive(shape, kept):
        major, middle, minor = _partition(shape, kept)
        if middle == 1:
            return Reduction(True, (1, 1, major * minor))
        if minor == 1:
            return Reduction(False, (1, major, middle))
        return Reduction(True, (major, middle, minor))
    major, middle, minor = _partition(shape, reduced)
    if minor == 1:
        return Reduction(True, (1, major, middle))
    return Reduction(False, (major, middle, minor))


def _partition(shape: Shape, dimensions: Sequence[int]) -> tuple[int, int, int]:
    """The sizes before, in and after consecutive dimensions, from major to minor."""
    order = _minor_to_major(shape)
    positions = [i for i, dimension in enumerate(order) if dimension in dimensions]
    first, last = (positions[0], positions[-1] + 1) if positions else (len(order), len(order))
    sizes = [shape.dimensions[dimension] for dimension in order]
    return prod(sizes[last:]), prod(sizes[first:last]), prod(sizes[:first])


def _are_consecutive(shape: Shape, dimensions: Sequence[int]) -> bool:
    order = _minor_to_major(shape)
    positions = [order.index(dimension) for dimension in dimensions]
    return not positions or max(positions) - min(positions) == len(positions) - 1


def _beats_elemental(reduction: Reduction) -> bool:
    """Whether a reduction kernel is faster than an elemental one, by XLA's measurements."""
    _, major, minor = reduction.sizes
    if reduction.is_row:
        return minor >= _WARP_SIZE or (minor > 0 and _WARP_SIZE % minor == 0)
    return not (
        major < _WARP_SIZE
        or (major < 2 * _WARP_SIZE and minor < _WARP_SIZE)
        or (major < 4 * _WARP_SIZE and minor < 8)
        or (major < 8 * _WARP_SIZE and minor < 3)
    )


def _is_race_free(reduction: Reduction) -> bool:
    """Whether one thread block computes a whole element (`ReductionIsRaceFree`)."""
    batch, major, minor = reduction.sizes
    if reduction.is_row:
        return minor <= 1024 * 16 and batch <= 8
    return major <= _WARP_SIZE * 128


# Transposes.


class Transpose(NamedTuple):
    """A transpose without dimensions of size 1, adjacent dimensions merged."""

    sizes: tuple[int, ...]
    permutation: tuple[int, ...]


def _transposes_agree(roots: Sequence[HloInstruction], heroes: Sequence[HloInstruction]) -> bool:
    """Whether one transpose kernel can write all roots (`FindConsistentTransposeHero`)."""
    transposes = [hero for hero in heroes if _is_tiled_transpose(hero)]
    if not transposes:
        return False
    first = transposes[0]
    if any(_transpose(transpose) != _transpose(first) for transpose in transposes):
        return False
    source = first.operands[0].shape
    return all(
        _is_tiled_transpose(hero)
        or (
            element_count(root.shape) == element_count(source)
            and _is_row_major(root.shape)
            and _is_row_major(source)
        )
        for root, hero in zip(roots, heroes, strict=True)
    )


def _is_tiled_transpose(instruction: HloInstruction) -> bool:
    """Whether a transpose goes through shared memory (`GetDescriptionForTiledTransposeEmitter`)."""
    if instruction.opcode != "transpose":
        return False
    if not (_is_row_major(instruction.shape) and _is_row_major(instruction.operands[0].shape)):
        return False
    sizes, permutation = _transpose(instruction)
    if len(permutation) < 2:
        return False
    element_type = instruction.shape.element_type
    bits = 8 if element_type.text == "pred" else element_type.bits
    if _is_packed(sizes, permutation, bits):
        return True
    source_sizes = [sizes[permutation.index(i)] for i in range(len(sizes))]
    if permutation[-1] == len(sizes) - 1:
        row_bits = bits * sizes[-1]
        return row_bits <= 64 and row_bits * min(source_sizes[-2], sizes[-2]) >= 8 * 16
    one, other = source_sizes[-1], sizes[-1]
    is_large = min(one, other) >= 16 or (min(one, other) >= 8 and one * other >= 64 * 128)
    return is_large and bits != 4


def _transpose(transpose: HloInstruction) -> Transpose:
    """`ShapeUtil::GetNormalizedLogicalTransposeShape`."""
    source = transpose.operands[0].shape.dimensions
    kept = [i for i, size in enumerate(source) if size != 1]
    permutation = [kept.index(i) for i in transpose.integers("dimensions") if source[i] != 1]
    runs: list[list[int]] = []
    for i in permutation:
        if runs and runs[-1][-1] + 1 == i:
            runs[-1].append(i)
        else:
            runs.append([i])
    firsts = sorted(run[0] for run in runs)
    return Transpose(
        tuple(prod(source[kept[i]] for i in run) for run in runs),
        tuple(firsts.index(run[0]) for run in runs),
    )


def _is_packed(sizes: tuple[int, ...], permutation: tuple[int, ...], bits: int) -> bool:
    """Whether several small elements share one bank (`GetPackedTransposeTileSizes`)."""
    if bits >= _BANK_BITS or permutation[-1] == len(sizes) - 1:
        return False
    in_bank = _BANK_BITS // bits
    side = _SHARED_MEMORY_BANKS * in_bank
    minor = sizes[-1]
    source_minor = sizes[permutation.index(len(sizes) - 1)]
    between = sizes[-2] if permutation[-2] == len(sizes) - 2 else 1
    columns = min(source_minor, side)
    columns *= min(between, side // columns)
    rows = min(minor, side)
    return (
        min(columns, rows) >= 10 * in_bank
        and rows % in_bank == 0
        and columns % in_bank == 0
        and minor % rows % in_bank == 0
    )


# Shapes.


def _minor_to_major(shape: Shape) -> tuple[int, ...]:
    return (shape.layout or default_layout(shape.rank)).minor_to_major


def _is_row_major(shape: Shape) -> bool:
    return _minor_to_major(shape) == default_layout(shape.rank).minor_to_major
