"""The memory XLA's GPU autotuner takes while it compiles: a model, fitted to recorded compiles.

In: the instructions of a compiled program. Out: the requests made for those that are tuned. As
recorded with jax 0.11.2 on an H200 (every request of the compiles of recorded jobs), an instruction
is tuned alone: its operands are made with 16 MiB of red zones each; a first run of a candidate has
red zones around its results and its workspace, too, a second run has none; the results of the first
candidate stay as the reference, all other memory goes back after each run. Candidates of cuBLAS
take a workspace of 32 MiB. Which instructions are tuned is told by their kind; it differs between
releases, and a program that comes from a compilation cache is not tuned at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.hlo.padding import unpadded_size
from hlomem.job.plans import Tuned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.hlo.ir import HloInstruction, HloModule

RED_ZONE = 16 << 20
WORKSPACE = (32 << 20) + 256
_GEMM = re.compile(r"__triton_gemm|__cublas\$|__cudnn\$|__custom_fusion|__triton_nested_gemm")
_TUNED_NAME = re.compile(r"(?:gemm_fusion|wrapped_transpose|.*transpose_fusion|.*reduce_fusion)")


_NOT_TILED = frozenset(
    {"dynamic-slice", "dynamic-update-slice", "gather", "scatter", "pad", "concatenate", "sort"}
)
"""Inside of a fusion they leave it one kernel only, and nothing to choose."""


def requests_of(instruction: Tuned, new_key: Callable[[], int]) -> Iterator[tuple[int, int | None]]:
    """The requests for one instruction: keys with bytes, or None where they go back."""
    inputs = [(new_key(), size + RED_ZONE) for size in instruction.inputs]
    yield from inputs
    reference: list[int] = []
    for _ in range(2):
        guarded = [(new_key(), size + RED_ZONE) for size in instruction.outputs]
        if instruction.workspace:
            guarded.append((new_key(), instruction.workspace + RED_ZONE))
        yield from guarded
        yield from ((key, None) for key, _ in guarded)
        plain = [(new_key(), size) for size in instruction.outputs]
        scratch = [(new_key(), instruction.workspace)] if instruction.workspace else []
        yield from plain
        yield from scratch
        yield from ((key, None) for key, _ in scratch)
        if reference:
            yield from ((key, None) for key, _ in plain)
        else:
            reference = [key for key, _ in plain]
    yield from ((key, None) for key in reference)
    yield from ((key, None) for key, _ in inputs)


def tuned_in(module: HloModule) -> tuple[Tuned, ...]:
    """The instructions of a compiled program that were tuned, each form once."""
    found: dict[tuple[object, ...], Tuned] = {}
    for instruction in module.iter_outer_instructions():
        if _is_tuned(instruction):
            found.setdefault(_form(instruction), _tuned(instruction))
    return tuple(found.values())


def _form(instruction: HloInstruction) -> tuple[object, ...]:
    """The same for instructions that are tuned once."""
    kind = instruction.name.rstrip("0123456789").rstrip(".")
    shapes = [operand.shape.text for operand in instruction.operands]
    return kind, instruction.shape.text, *shapes


def _is_tuned(instruction: HloInstruction) -> bool:
    if instruction.opcode == "custom-call":
        return bool(_GEMM.search(str(instruction.custom_call_target)))
    if instruction.opcode != "fusion":
        return False
    if _GEMM.search(str(instruction.backend_config or "")):
        return True
    if not _TUNED_NAME.match(instruction.name):
        return False
    inside = {inner.opcode for call in instruction.calls for inner in call.computation.instructions}
    return inside.isdisjoint(_NOT_TILED)


def _tuned(instruction: HloInstruction) -> Tuned:
    is_gemm = instruction.name.startswith("gemm") or instruction.opcode == "custom-call"
    outputs = _sizes(instruction)
    if instruction.opcode == "custom-call" and len(outputs) > 1:
        outputs = outputs[:-1]  # the last is the workspace
    return Tuned(
        name=instruction.name,
        inputs=tuple(size for operand in instruction.operands for size in _sizes(operand)),
        outputs=tuple(outputs),
        workspace=WORKSPACE if is_gemm else 0,
    )


def _sizes(instruction: HloInstruction) -> list[int]:
    return [unpadded_size(leaf) for _, leaf in instruction.shape.leaves() if leaf.is_array]
