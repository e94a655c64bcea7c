"""`narrow`: compute in a narrower type with unchanged parameters (mixed precision).

CPUs convert back and may need more. At most: more values stay in fast memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.advice.trial import shrunk
from hlomem.report.data.advice import Advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case

LINK = "https://docs.jax.dev/en/latest/jax.numpy.html"
_NARROWER = {"f64": ("f32", "float32"), "f32": ("bf16", "bfloat16")}
_MIN_SHARE, _MAX_SHARE = 0.6, 1.8
"""Bounds of what XLA saved in compiled programs, relative to the counted bytes."""


def advise_narrow(subject: Case) -> Iterator[Advice]:
    computed = [buffer for buffer in subject.replay.buffers if "jvp(" in (buffer.op_name or "")]
    sizes = {
        old: sum(one.size for one in computed if one.shape.startswith(f"{old}["))
        for old in _NARROWER
    }
    old = next((old for old, size in sizes.items() if size), "")
    if not old or (subject.machine.is_host and old == "f32"):
        return
    new, numpy = _NARROWER[old]
    wide = [buffer for buffer in computed if buffer.shape.startswith(f"{old}[")]
    saved = subject.replay.saved(
        {buffer.id: (shrunk(buffer, buffer.size // 2),) for buffer in wide}
    )
    yield Advice(
        rule="narrow",
        title=f"compute in {new} instead of {old}, with parameters in {old}",
        argument=new,
        least=round(saved * _MIN_SHARE),
        most=round(saved * _MAX_SHARE),
        confidence="low",
        cost="precision; sums and the loss should stay in the wider type",
        how=f"weights = jax.tree.map(lambda w: w.astype(jnp.{numpy}), params)\n"
        f"Block(dtype=jnp.{numpy})  # flax",
        link=LINK,
    )
