"""The differences between chips when a kernel is compiled alone: its limit, who tells its use.

TPU: libtpu gets the whole VMEM as the limit, so that it tells the use of a kernel that does not fit
its own limit, too. GPU: XLA notes the shared memory of Triton kernels when it launches them, and
says how much was asked for where that is too much; of Mosaic kernels it notes nothing.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from hlomem.base.errors import CommandError
from hlomem.base.source import Source
from hlomem.jax.kernels.limits import flag_limit
from hlomem.jax.target_kinds import CudaTarget, Target, TpuTarget, parse_target
from hlomem.machines.gpu_facts import GPUS
from hlomem.view.scoped import iter_shared, iter_uses

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.jax.kernels.cutting import CutKernel
    from hlomem.kernels.blocks import KernelFacts

_VMEM, _SMEM = 1, 4
_CODEGEN, _THUNKS = "*.after_codegen.txt", "*.thunk_sequence.txt"
_MAX_SAID = 1000
_SHARED_ASKED = re.compile(r"Shared memory size limit exceeded: requested (\d{1,12})")


class KnownUse(Struct, frozen=True):
    """The use of a kernel, as it is kept."""

    used: int | None = None
    smem: int | None = None
    said: str = ""
    """The compiler's message where the kernel needs more than the chip has."""
    problem: str = ""
    """Its message where it could not be compiled at all."""


def kernel_target(name: str) -> Target:
    """A target whose compiler tells what kernels use."""
    target = parse_target(name)
    if not isinstance(target, TpuTarget | CudaTarget):
        raise CommandError(f"kernels are compiled for TPUs and GPUs, not for {target.name}")
    return target


def limit_of(facts: KernelFacts, target: Target) -> int:
    """Bytes a kernel may use: its own limit, the flag's, or the chip's."""
    if isinstance(target, CudaTarget):
        return GPUS[target.chip].generation.shared_per_block
    chip = target.machine.chip
    assert chip is not None
    return min(facts.own_limit or flag_limit() or chip.scoped_vmem_bytes, chip.vmem_bytes)


def facts_on(facts: KernelFacts, target: Target) -> KernelFacts:
    """A kernel as a chip has it: on a GPU no block is certain to be in shared memory."""
    if not isinstance(target, CudaTarget):
        return facts
    blocks = tuple(structs.replace(block, space="elsewhere", copies=1) for block in facts.blocks)
    return structs.replace(facts, blocks=blocks, own_limit=None)


def lowered_for(kernel: CutKernel, target: Target) -> Any:
    """A kernel alone, lowered for a chip."""
    jax = import_module("jax")
    place = jax.sharding.SingleDeviceSharding(target.devices[0])
    shapes = [
        jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=place) for one in kernel.arguments
    ]
    chip = target.machine.chip
    is_tpu = isinstance(target, TpuTarget) and chip is not None
    call = kernel.with_limit(chip.vmem_bytes) if is_tpu and chip is not None else kernel.call
    return jax.jit(call).lower(*shapes)


def compiled_use(folder: Path, refusal: str, target: Target) -> KnownUse:
    """The use of a kernel by the dump of its compile, or by the refusal."""
    if isinstance(target, CudaTarget):
        return _on_cuda(folder, refusal)
    if refusal:
        return KnownUse(said=refusal.partition("\n\n")[0][:_MAX_SAID])
    texts = _texts(folder, _CODEGEN)
    if not texts:
        return KnownUse(problem=f"this libtpu writes no {_CODEGEN}: what it uses is not known")
    uses = [use for text in texts for use in iter_uses(text) if use.kernel]
    smem = [use.used for use in uses if use.color == _SMEM]
    return KnownUse(
        used=max((use.used for use in uses if use.color == _VMEM), default=0),
        smem=max(smem, default=None),
    )


def _on_cuda(folder: Path, refusal: str) -> KnownUse:
    if refusal:
        asked = _SHARED_ASKED.search(refusal)
        said = refusal.partition("\n")[0][:_MAX_SAID]
        return KnownUse(used=int(asked[1]) if asked else None, said=said)
    texts = _texts(folder, _THUNKS)
    if not any("Kernel [" in text.text for text in texts):
        return KnownUse(problem="XLA does not note the shared memory of a Mosaic kernel")
    return KnownUse(used=max((use.used for text in texts for use in iter_shared(text)), default=0))


def _texts(folder: Path, pattern: str) -> list[Source]:
    return [
        Source(path.name, path.read_text(errors="surrogateescape"))
        for path in sorted(folder.glob(pattern))
    ]
