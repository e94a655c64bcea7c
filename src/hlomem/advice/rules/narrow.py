"""`narrow`: compute in bf16 with parameters in f32 (mixed precision); a possibility.

Applies to a training step most of whose forward pass is f32, with matrix products, on machines that
compute in bf16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report.data.advice import Advice
from hlomem.report.data.phases import is_backward, is_forward

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case

LINK = "https://docs.jax.dev/en/latest/jax.numpy.html"
_MOST = 0.5
_PRODUCTS = ("/dot_general", "/conv_general_dilated")
_HOW = """import jax
import jax.numpy as jnp

def narrowed(params):  # what the loss computes with; the optimizer keeps f32
    return jax.tree.map(lambda w: w.astype(jnp.bfloat16), params)"""


def advise_narrow(subject: Case) -> Iterator[Advice]:
    """One advice."""
    forward = [buffer for buffer in subject.memory.buffers if is_forward(buffer.op_name)]
    wide = [buffer for buffer in forward if buffer.shape.startswith("f32[")]
    size = sum(buffer.size for buffer in forward)
    if (
        subject.machine.is_host
        or not size
        or sum(buffer.size for buffer in wide) < _MOST * size
        or not any((buffer.op_name or "").endswith(_PRODUCTS) for buffer in wide)
        or not any(is_backward(buffer.op_name) for buffer in subject.memory.buffers)
    ):
        return
    yield Advice(
        rule="narrow",
        title="compute in bf16 instead of f32, with parameters in f32",
        argument="bf16",
        method="possible",
        confidence="low",
        cost="precision; sums and the loss should stay in f32",
        how=_HOW,
        link=LINK,
    )
