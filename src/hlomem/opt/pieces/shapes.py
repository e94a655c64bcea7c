"""Shapes and settings of instructions that compute one of n pieces."""

from __future__ import annotations

import json
import re
from math import prod
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import EditError
from hlomem.hlo.dimension_links import Share, gemm_config
from hlomem.hlo.shape import ElementType, Shape
from hlomem.hlo.shape_edits import with_element_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.hlo.dimension_links import Cut, Link
    from hlomem.hlo.ir import HloInstruction

_RANGE = re.compile(r"\[(\d+):(\d+)(?::(\d+))?\]")
_CONFIG = "backend_config"
_BY_DEFAULT = {"__cublas$gemm": "-1", "__cublas$lt$matmul": "0"}
"""The algorithm that a library has for any sizes: what was tuned is tuned for others."""
_NARROW = frozenset({"bf16", "f16"})
"""Types in which a sum of sums would lose too much."""


def piece_of(shape: Shape, cut: Cut, pieces: int) -> Shape:
    """The shape of one piece of an array, in the same layout."""
    if not isinstance(cut, int):
        return shape
    sizes = list(shape.dimensions)
    if sizes[cut] % pieces:
        raise EditError(f"{shape.text_without_layout} has no {pieces} pieces")
    sizes[cut] //= pieces
    return Shape(shape.element_type, tuple(sizes), shape.dynamic, shape.layout)


def summed_in(shape: Shape, cut: Cut) -> Shape:
    """The shape in which a result is put together: sums of narrow floats in a wider type."""
    is_narrow = shape.element_type.text in _NARROW and cut == Share("add")
    return with_element_type(shape, ElementType.F32) if is_narrow else shape


def braced(numbers: Sequence[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def piece_attributes(one: HloInstruction, link: Link, shape: Shape, pieces: int) -> dict[str, str]:
    """The attributes of an instruction that computes a piece of a shape."""
    attributes = dict(one.attributes)
    if one.opcode == "slice":
        ranges = _RANGE.findall(attributes["slice"])
        [cut] = link.operands
        ranges[cut or 0] = ("0", str(shape.dimensions[cut or 0]), "1")
        attributes["slice"] = f"{{{', '.join(map(_range, ranges))}}}"
    elif one.opcode == "dynamic-slice":
        attributes["dynamic_slice_sizes"] = braced(shape.dimensions)
    elif one.opcode == "gather" and link.column is None and link.operands[0] is not None:
        sizes = list(one.integers("slice_sizes"))
        sizes[link.operands[0]] //= pieces
        attributes["slice_sizes"] = braced(sizes)
    elif one.opcode == "custom-call":
        attributes[_CONFIG] = _gemm_text(one, link, pieces)
    elif one.opcode == "fusion" and _CONFIG in attributes and not _may_keep(one, shape):
        del attributes[_CONFIG]
    return attributes


def _range(given: tuple[str, str, str]) -> str:
    start, limit, stride = given
    return f"[{start}:{limit}]" if stride in ("", "1") else f"[{start}:{limit}:{stride}]"


def _gemm_text(call: HloInstruction, link: Link, pieces: int) -> str:
    """The settings of a product: an algorithm for any size, and strides of the matrices given."""
    config: Any = json.loads(call.attributes[_CONFIG])
    gemm = config["gemm_backend_config"]
    assert gemm_config(call) is not None
    gemm["selected_algorithm"] = _BY_DEFAULT[call.custom_call_target or ""]
    numbers = gemm.get("dot_dimension_numbers", {})
    for side, operand, cut in zip(("lhs", "rhs"), call.operands, link.operands, strict=True):
        batch = tuple(map(int, numbers.get(f"{side}_batch_dimensions", ())))
        if f"{side}_stride" in gemm and cut is not None and cut not in batch:
            sizes = operand.shape.dimensions
            matrix = prod(size for place, size in enumerate(sizes) if place not in batch)
            if int(gemm[f"{side}_stride"]) != matrix:
                raise EditError(f"the matrices of {call.name} do not lie one after another")
            gemm[f"{side}_stride"] = str(matrix // pieces)
    return json.dumps(config, separators=(",", ":"))


def _may_keep(fusion: HloInstruction, shape: Shape) -> bool:
    """Whether the settings of a fusion are right for a piece of its result."""
    config = fusion.backend_config
    if not isinstance(config, dict):
        return True
    results = list(shape.elements) if shape.is_tuple else [shape]
    partitions = config.get("outer_dimension_partitions")
    if not isinstance(partitions, list):
        return True
    sizes = results[0].dimensions
    order = results[0].layout.minor_to_major[::-1] if results[0].layout else range(len(sizes))
    return all(
        int(str(count)) <= sizes[place] for count, place in zip(partitions, order, strict=False)
    )
