"""`carry`: carry a cache through a loop instead of scanning over it; a possibility.

Applies if a loop of an inference program stacks values with the shape of an argument: as `xs` and
`ys` both exist, carried and updated in place one is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report.data import roles
from hlomem.report.data.advice import Advice
from hlomem.report.data.donation import top_level_name
from hlomem.report.data.phases import is_backward

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case
    from hlomem.report.data.memory import Buffer

LINK = "https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html"
_WORTH = 0.01
"""Smallest fraction of the space that a cache must have."""
_HOW = """import jax
import jax.numpy as jnp

def layer(carry, inputs):  # the cache is neither xs nor ys
    (x, cache), (w, i) = carry, inputs
    x, new = attend(x, w, cache[i])
    return (x, cache.at[i].set(new)), None

inputs = (weights, jnp.arange(cache.shape[0]))
(x, cache), _ = jax.lax.scan(layer, (x, cache), inputs)"""


def advise_carry(subject: Case) -> Iterator[Advice]:
    """One advice for all caches."""
    if any(is_backward(buffer.op_name) for buffer in subject.memory.buffers):
        return  # gradients are stacked, too, and have the shapes of arguments
    names = _stacked_arguments(subject)
    if not names:
        return
    yield Advice(
        rule="carry",
        title=f"carry {', '.join(names)} through the loop over layers: as xs and ys of a scan"
        " they exist twice",
        argument=", ".join(names),
        method="possible",
        confidence="low",
        cost="none, if the cache is updated in place",
        how=_HOW,
        link=LINK,
    )


def _stacked_arguments(subject: Case) -> list[str]:
    """The arguments of which a loop stacks values of the same shape."""
    arguments: dict[str, list[str]] = {}
    for buffer in subject.memory.buffers:
        if buffer.opcode == "parameter" and buffer.parameter:
            name = top_level_name(buffer.parameter) or buffer.parameter
            arguments.setdefault(_elements(buffer), []).append(name)
    return sorted(
        {
            name
            for buffer in subject.memory.buffers
            if buffer.role == roles.STACKED
            and buffer.op_name
            and buffer.color == subject.space.color
            and buffer.size > _WORTH * subject.space.size
            for name in arguments.get(_elements(buffer), ())
        }
    )


def _elements(buffer: Buffer) -> str:
    return buffer.shape.partition("{")[0]
