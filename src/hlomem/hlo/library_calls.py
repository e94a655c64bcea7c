"""Calls of cuBLAS, cuDNN and Triton: which give the same for the same operands, and how much work.

Such a call returns its result and a workspace, which is memory it needs while it runs. Targets are
those of `xla/service/gpu/cublas_cudnn.cc`; calls with random numbers of their own (attention with
dropout) are not among them.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.ir import HloInstruction

_EFFECT = "custom_call_has_side_effect"
_MATMULS = frozenset({"__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8"})
_INPUT, _KERNEL, _RESULT = 0, 1, -1


class _Roles(NamedTuple):
    """The operands of a call that are parts of its convolution; -1 is the result."""

    image: int
    kernel: int
    out: int


_CONVOLUTIONS: Mapping[str, _Roles] = {
    "__cudnn$convForward": _Roles(_INPUT, _KERNEL, _RESULT),
    "__cudnn$convForwardGraph": _Roles(_INPUT, _KERNEL, _RESULT),
    "__cudnn$convBiasActivationForward": _Roles(_INPUT, _KERNEL, _RESULT),
    "__cudnn$convBackwardInput": _Roles(_RESULT, _KERNEL, _INPUT),
    "__cudnn$convBackwardFilter": _Roles(_INPUT, _RESULT, _KERNEL),
}
_OTHERS = frozenset({"__cudnn$norm", "__gpu$xla.gpu.triton"})
_PURE = _MATMULS | _OTHERS | _CONVOLUTIONS.keys()


_ONE_BY_ONE = frozenset({"cusolver_geqrf_ffi", "cusolver_orgqr_ffi"})
_SHARED_ROWS = 6
"""Rows at which a matrix among many takes as long as one by itself, in its own block of threads."""


class Convolved(NamedTuple):
    """The sizes of a convolution."""

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    out: tuple[int, ...]


def is_library_call(instruction: HloInstruction) -> bool:
    """Whether a custom call computes its results from its operands, and does nothing else."""
    return instruction.custom_call_target in _PURE and instruction.attributes.get(_EFFECT) != "true"


def contracted(call: HloInstruction) -> tuple[int, ...] | None:
    """The dimensions of its first operand that a matrix multiplication sums over; None for others.

    `GemmBackendConfig` of `xla/service/gpu/backend_configs.proto`.
    """
    if call.custom_call_target not in _MATMULS:
        return None
    config: Any = call.backend_config
    for name in ("gemm_backend_config", "dot_dimension_numbers", "lhs_contracting_dimensions"):
        config = config.get(name) if isinstance(config, dict) else None
    return tuple(map(int, config)) if isinstance(config, list) else None


def columns_decomposed(call: HloInstruction) -> int:
    """Columns that a decomposition or solution goes through one after another.

    Of many matrices at once, unless each is left to one block of threads: these take a column as
    much longer as it has rows (jaxlib/gpu/solver_kernels_ffi.cc).
    """
    *batch, rows, columns = (1, 1, *call.operands[0].shape.dimensions)
    if call.custom_call_target in _ONE_BY_ONE and prod(batch) > 1:
        return columns * max(rows // _SHARED_ROWS, 1)
    return columns


def convolved(call: HloInstruction) -> Convolved | None:
    """The sizes of the convolution that a call computes, or a gradient of; None for others."""
    target = call.custom_call_target if call.opcode == "custom-call" else None
    roles = _CONVOLUTIONS.get(target or "")
    if roles is None:
        return None
    result = call.shape.elements[0] if call.shape.is_tuple else call.shape
    shapes = [*(operand.shape for operand in call.operands[:2]), result]
    return Convolved(*(shapes[place].dimensions for place in roles))
