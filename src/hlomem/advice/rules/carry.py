"""`carry`: carry a cache through a loop instead of scanning over it.

In: a program that is not differentiated. Out: advice where a loop stacks something of the shape of
an argument: the argument is sliced as `xs`, the result stacked as `ys`, and both are held. Carried
and updated where it lies, one is enough. The temporaries are replayed without what is stacked. At
most: the slices of one iteration are not needed, either.
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

    from hlomem.advice.case import Subject
    from hlomem.base.quantities import ValueId
    from hlomem.report.data.memory import Buffer

LINK = "https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html"
_HOW = """def layer(carry, inputs):  # the cache is neither xs nor ys
    (x, cache), (w, i) = carry, inputs
    start = (i, 0, position) + (0,) * (cache.ndim - 3)
    cache = jax.lax.dynamic_update_slice(cache, new[None], start)
    return (x, cache), None
inputs = (weights, jnp.arange(layers))
(x, cache), _ = jax.lax.scan(layer, (x, cache), inputs)"""


def advise_carry(subject: Subject) -> Iterator[Advice]:
    """One advice for all caches."""
    if any(is_backward(buffer.op_name) for buffer in subject.memory.buffers):
        return  # gradients are stacked, too, and have the shapes of arguments
    stacked = _stacked_like_arguments(subject)
    if not stacked:
        return
    memory = subject.memory
    gone: dict[ValueId, tuple[Buffer, ...]] = {}
    for buffer, _ in stacked:
        family = memory.family(memory.joined.placed_by_id[buffer.id])
        gone |= dict.fromkeys([placed.id for placed in family], ())
    saved = subject.replay.saved(gone)
    names = sorted({name for _, known in stacked for name in known})
    slices = sum(buffer.size // _count(buffer) for buffer, _ in stacked)
    size = format_bytes(sum(buffer.size for buffer, _ in stacked))
    yield Advice(
        rule="carry",
        title=f"carry {', '.join(names)} through the loop over layers: as xs and ys of a scan"
        f" {size} are held beside the arguments",
        argument=", ".join(names),
        least=saved,
        most=saved + slices,
        method="counted",
        confidence="medium",
        cost="none, where the cache is updated in place",
        how=_HOW,
        link=LINK,
    )


def _count(buffer: Buffer) -> int:
    shape = parse_shape_or_none(buffer.shape)
    return shape.dimensions[0] if shape is not None and shape.dimensions else 1


def _stacked_like_arguments(subject: Subject) -> list[tuple[Buffer, list[str]]]:
    """Stacked values shaped like an argument, one for each storage, with the arguments' names."""
    arguments: dict[str, list[str]] = {}
    for buffer in subject.memory.buffers:
        if buffer.opcode == "parameter" and buffer.parameter:
            name = top_level_name(buffer.parameter) or buffer.parameter
            arguments.setdefault(_elements(buffer), []).append(name)
    found: dict[tuple[int, int], tuple[Buffer, list[str]]] = {}
    for buffer in subject.replay.buffers:
        names = arguments.get(_elements(buffer))
        if buffer.role == roles.STACKED and names and buffer.op_name:
            found.setdefault((buffer.allocation, buffer.offset), (buffer, names))
    return list(found.values())


def _elements(buffer: Buffer) -> str:
    return buffer.shape.partition("{")[0]
