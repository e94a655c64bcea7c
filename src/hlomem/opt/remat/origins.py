"""Lines of user code that `jax.checkpoint` would have to recompute, or save, for the same."""

from __future__ import annotations

from math import prod
from pathlib import PurePath
from typing import TYPE_CHECKING

from hlomem.base.source import visible
from hlomem.hlo.schedule import running_computations
from hlomem.opt.orders.effects import takes_time
from hlomem.opt.remat.edit import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlomem.hlo.ir import HloInstruction, HloModule

MAX_ORIGINS = 5
_TRANSPOSED = "transpose("
_PRODUCTS = ("dot_general", "ragged_dot")
_TENSORS = {
    "query": "query_proj",
    "key": "key_proj",
    "value": "value_proj",
    "qkv_proj": "qkv_proj",
    "out": "out_proj",
    "wi_0": "mlpwi_0",
    "wi_1": "mlpwi_1",
    "wi": "mlpwi",
    "wo": "mlpwo",
}
"""By scope of a layer: the name by which MaxText's `remat_policy=custom` knows what it makes."""
MIN_TENSORS = 2
_STACKING = "dynamic_update_slice"
"""An operation that hands on what others compute: so a loop gives a value to its readers."""


def find_origins(module: HloModule) -> tuple[str, ...]:
    """The lines that most recomputed values come from; none where the text names none."""
    return _largest_first(_bytes_by_place(_computed_again(module)))


def find_kept(module: HloModule) -> tuple[str, ...]:
    """The lines whose values the backward pass reads, and none of which is recomputed."""
    kept = _bytes_by_place(
        instruction
        for instruction in module.entry.instructions
        if takes_time(instruction)
        and not _is_backward(instruction)
        and any(map(_is_backward, instruction.users))
    )
    again = _bytes_by_place(_computed_again(module))
    return _largest_first({place: size for place, size in kept.items() if place not in again})


def find_tensors(module: HloModule) -> tuple[tuple[str, str], ...]:
    """MaxText's names of what products make in its layers, `remat` where one is recomputed.

    By the scopes of its modules; none where fewer than two are known.
    """
    found: dict[str, str] = {}
    for computation in running_computations(module):
        for instruction in computation.instructions:
            name = _tensor_of(instruction)
            if name and is_computed_again(instruction):
                found[name] = "remat"
            elif name:
                found.setdefault(name, "device")
    is_choice = len(found) >= MIN_TENSORS and "remat" in found.values()
    return tuple(sorted(found.items())) if is_choice else ()


def _tensor_of(instruction: HloInstruction) -> str:
    *scopes, operation = instruction.metadata.op_name.split("/")
    if operation not in _PRODUCTS or not scopes or _TRANSPOSED in instruction.metadata.op_name:
        return ""
    return _TENSORS.get(scopes[-1], "")


def _computed_again(module: HloModule) -> Iterator[HloInstruction]:
    for computation in running_computations(module):
        for instruction in computation.instructions:
            is_passed_on = instruction.metadata.op_name.endswith(_STACKING)
            if is_computed_again(instruction) and takes_time(instruction) and not is_passed_on:
                yield instruction


def is_computed_again(instruction: HloInstruction) -> bool:
    return f".{SUFFIX}" in instruction.name


def _is_backward(instruction: HloInstruction) -> bool:
    """Whether it belongs to the backward pass: JAX names what it transposes, clones run for it."""
    return _TRANSPOSED in instruction.metadata.op_name or is_computed_again(instruction)


def _bytes_by_place(instructions: Iterable[HloInstruction]) -> dict[str, int]:
    bytes_of: dict[str, int] = {}
    for instruction in instructions:
        if place := _place(instruction):
            bytes_of.setdefault(place, 0)
            for _, leaf in instruction.shape.leaves():
                bytes_of[place] += prod(leaf.dimensions) * leaf.element_type.byte_width
    return bytes_of


def _largest_first(bytes_of: dict[str, int]) -> tuple[str, ...]:
    return tuple(sorted(bytes_of, key=lambda place: -bytes_of[place])[:MAX_ORIGINS])


def _place(instruction: HloInstruction) -> str:
    """`model.py:12 (tanh)`; empty where nothing is known."""
    metadata = instruction.metadata
    operation = metadata.op_name.rpartition("/")[2]
    file, line = metadata.source_file, metadata.source_line
    if not file and (frames := instruction.stack_frames):
        file, line = frames[0].file_name, frames[0].line
    where = f"{PurePath(file).name}:{line}" if file else ""
    return visible(f"{where} ({operation})" if where and operation else where or operation)
