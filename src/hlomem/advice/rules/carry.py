"""`carry`: carry a cache through a loop instead of scanning over it.

As `xs` and `ys` of a scan it exists twice. At most, the slices of one iteration are saved as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.report.data import roles
from hlomem.report.data.advice import Advice
from hlomem.report.data.donation import top_level_name
from hlomem.report.data.phases import is_backward
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case
    from hlomem.report.data.memory import Buffer

LINK = "https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html"
_HOW = """def layer(carry, inputs):  # the cache is neither xs nor ys
    (x, cache), (w, i) = carry, inputs
    start = (i, 0, position) + (0,) * (cache.ndim - 3)
    cache = jax.lax.dynamic_update_slice(cache, new[None], start)
    return (x, cache), None
inputs = (weights, jnp.arange(layers))
(x, cache), _ = jax.lax.scan(layer, (x, cache), inputs)"""


def advise_carry(subject: Case) -> Iterator[Advice]:
    if any(is_backward(buffer.op_name) for buffer in subject.memory.buffers):
        return  # gradients are stacked, too, and have the shapes of arguments
    stacked = _stacked_like_arguments(subject)
    if not stacked:
        return
    saved = subject.replay.saved(subject.replay.without(buffer for buffer, _ in stacked))
    names = sorted({name for _, known in stacked for name in known})
    slices = sum(buffer.size // _count(buffer) for buffer, _ in stacked)
    size = format_bytes(sum(buffer.size for buffer, _ in stacked))
    yield Advice(
        rule="carry",
        title=f"carry {', '.join(names)} through the loop over layers: as xs and ys of a scan"
        f" {size} are held in addition to the arguments",
        argument=", ".join(names),
        least=saved,
        most=saved + slices,
        cost="none, if the cache is updated in place",
        how=_HOW,
        link=LINK,
    )


def _count(buffer: Buffer) -> int:
    shape = parse_shape_or_none(buffer.shape)
    return shape.dimensions[0] if shape is not None and shape.dimensions else 1


def _stacked_like_arguments(subject: Case) -> list[tuple[Buffer, list[str]]]:
    """Stacked values shaped like an argument, one per storage, with the arguments' names."""
    arguments: dict[str, list[str]] = {}
    for buffer in subject.memory.buffers:
        if buffer.opcode == "parameter" and buffer.parameter:
            name = top_level_name(buffer.parameter) or buffer.parameter
            arguments.setdefault(buffer.elements, []).append(name)
    found: dict[tuple[int, int], tuple[Buffer, list[str]]] = {}
    for buffer in subject.replay.buffers:
        names = arguments.get(buffer.elements)
        if buffer.role == roles.STACKED and names and buffer.op_name:
            found.setdefault((buffer.allocation, buffer.offset), (buffer, names))
    return list(found.values())
