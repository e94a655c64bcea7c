"""`checkpoint`: recompute what layers keep for the backward pass.

At least: values passed between layers stay, and one layer during its backward pass. At most: the
backward pass of a layer needs nothing, and the holes disappear.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.report.data.advice import Advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case
    from hlomem.advice.layers import Layers
    from hlomem.base.quantities import ValueId
    from hlomem.report.data.memory import Buffer

LINK = "https://docs.jax.dev/en/latest/gradient-checkpointing.html"
_LEAST_SHARE = 0.25
"""Smallest fraction of the kept bytes that must be saved for certain."""
_NUMBER = re.compile(r"\d+")
DOTS = "dots_with_no_batch_dims_saveable"


def advise_checkpoint(subject: Case) -> Iterator[Advice]:
    """Everything of a layer recomputed, and everything but matrix products."""
    layers = subject.layers
    if layers is None:
        return
    replay = subject.replay
    gone = replay.without(layers.kept)
    saved = replay.saved(gone)
    least = saved - layers.boundary - layers.size // layers.number
    most = max(saved, replay.saved(gone | _repeated(subject))) + replay.holes
    if least < _LEAST_SHARE * saved:
        return  # too uncertain
    yield _advice(layers, least, most, "")
    if layers.products and least > layers.products:
        kept = layers.products
        yield _advice(layers, least - kept, min(most, saved) - kept // 2, DOTS)


def _repeated(subject: Case) -> dict[ValueId, tuple[Buffer, ...]]:
    """Values that both passes compute several times."""
    made = Counter(map(_likeness, subject.replay.buffers))
    return {
        buffer.id: ()
        for buffer in subject.replay.buffers
        if "jvp(" in (buffer.op_name or "") and made[_likeness(buffer)] > 1
    }


def _likeness(buffer: Buffer) -> tuple[str, str]:
    return _NUMBER.sub("#", buffer.op_name or ""), buffer.elements


def _advice(layers: Layers, least: int, most: int, policy: str) -> Advice:
    size = format_bytes(layers.size)
    unit = "iterations of the loop" if layers.is_loop else "layers"
    what = f"recompute the {layers.number} {unit} in the backward pass"
    saved = ", except matrix products" if policy else ""
    time = "time: about one more forward pass" if not policy else "time: less than without a policy"
    return Advice(
        rule="checkpoint",
        title=f"{what}{saved}: {size} are kept for it",
        argument=policy,
        least=least,
        most=most,
        cost=time,
        how=_how(layers, policy),
        link=LINK,
    )


def _how(layers: Layers, policy: str) -> str:
    scope, _, method = (layers.function or "layer").rpartition(".")
    is_module = bool(scope) and method == "__call__"
    option = ", policy=policy" if policy else ""
    lines = [f"policy = jax.checkpoint_policies.{policy}"] if policy else []
    lines += [f"nn.remat({scope}{option})" if is_module else f"jax.checkpoint({method}{option})"]
    where = f"  # called at {layers.caller}" if layers.caller else ""
    return "\n".join(lines) + where
