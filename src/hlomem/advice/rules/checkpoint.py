"""`checkpoint`: recompute what layers keep for the backward pass; a possibility.

Names the functions whose forward pass repeats, in the framework that calls them. Where something
is recomputed already, the policy that keeps least is proposed instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.advice.code import NOTHING, wrap_layers
from hlomem.advice.functions import is_checkpointed
from hlomem.report.data.advice import Advice
from hlomem.report.data.phases import is_backward
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.advice.case import Case
    from hlomem.advice.functions import LayerFunction

LINK = "https://docs.jax.dev/en/latest/gradient-checkpointing.html"


def advise_checkpoint(subject: Case) -> Iterator[Advice]:
    """The outermost functions that repeat, recomputed."""
    if not any(is_backward(buffer.op_name) for buffer in subject.memory.buffers):
        return
    if not subject.layers:
        return
    layers = subject.layers[0]
    policy = NOTHING if is_checkpointed(subject.memory) else ""
    yield Advice(
        rule="checkpoint",
        title=describe_layers(layers, policy),
        argument=policy,
        method="possible",
        confidence="low",
        cost="time: at most one more forward pass of them",
        how=wrap_layers(layers, policy),
        link=LINK,
    )


def describe_layers(layers: Sequence[LayerFunction], policy: str = "") -> str:
    """The title of an advice to recompute functions."""
    names = list(dict.fromkeys(layer.short_name for layer in layers))
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    calls = sum(layer.calls for layer in layers if not layer.is_in_loop)
    words = [plural(calls, "call")] if calls else []
    words += ["the body of a loop"] if any(layer.is_in_loop for layer in layers) else []
    what = f"recompute {listed} in the backward pass ({', '.join(words)})"
    return f"{what} with the policy {policy}" if policy else what
