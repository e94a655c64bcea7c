"""The most pieces that the kernel of an instruction can compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.hlo.dimension_links import contraction_of
from hlomem.opt.constants import LEAST_ROWS, MAX_PIECES

if TYPE_CHECKING:
    from hlomem.hlo.dimension_links import Link
    from hlomem.hlo.ir import HloInstruction
    from hlomem.opt.pieces.solve import Solved


def most_pieces(one: HloInstruction, solved: Solved) -> int:
    """The most pieces: a Triton kernel has a tile in each, a library's product some rows."""
    config = one.backend_config if one.opcode == "fusion" else None
    if not isinstance(config, dict):
        return MAX_PIECES
    if "fusion_config" in config:
        return _by_rows(solved)
    told: Any = config.get("fusion_backend_config")
    return _by_tiles(one, solved.link, told) if isinstance(told, dict) else MAX_PIECES


def _by_tiles(one: HloInstruction, link: Link, told: dict[str, Any]) -> int:
    tiles = told.get("block_level_fusion_config", {}).get("output_tiles", [])
    if not str(told.get("kind", "")).startswith("__triton") or len(tiles) != len(link.results):
        return 1
    results = one.shape.elements if one.shape.is_tuple else (one.shape,)
    found = MAX_PIECES
    for tile, result, cut in zip(tiles, results, link.results, strict=True):
        if isinstance(cut, int):
            found = min(found, result.dimensions[cut] // int(tile["sizes"][cut]))
    return found


def _by_rows(solved: Solved) -> int:
    """XLA:CPU's libraries refuse products of vectors (`IsDotSupportedByYnn`)."""
    found = MAX_PIECES
    for one, inside in solved.inside.items():
        contraction = contraction_of(one)
        if contraction is None:
            continue
        for operand, cut, batch in zip(
            one.operands, inside.link.operands, contraction.batch, strict=True
        ):
            if cut is not None and cut not in batch:
                found = min(found, operand.shape.dimensions[cut] // LEAST_ROWS)
    return found
