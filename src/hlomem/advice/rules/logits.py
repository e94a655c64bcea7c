"""`logits`: compute the cross-entropy chunk by chunk.

At least: the loop over chunks carries the weights of the head and their gradient, so that they are
held twice more.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.advice.layers import last_parts
from hlomem.advice.trial import shrunk
from hlomem.base.sizes import format_bytes
from hlomem.hlo.opcodes import MOVES
from hlomem.report.data.advice import Advice
from hlomem.report.data.phases import is_backward, is_forward
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case
    from hlomem.report.data.memory import Buffer

LINK = "https://docs.jax.dev/en/latest/gradient-checkpointing.html"
_CHUNKS = 8
_MANY_CHUNKS = 16
_FEW = 1024
"""Number of classes up to which chunks save nothing."""
_WORTH = 0.02
"""Smallest fraction of the space that the logits must have."""


class _Head(NamedTuple):
    vocabulary: int
    size: int
    dimensions: tuple[int, ...]


def advise_logits(subject: Case) -> Iterator[Advice]:
    heads = dict.fromkeys(_heads(subject))  # layers repeat them
    found = [(head, _logits(subject, head)) for head in heads]
    found = [(head, logits) for head, logits in found if logits]
    if not found:
        return
    head, logits = max(found, key=lambda pair: sum(buffer.size for buffer in pair[1]))
    largest = max(logits, key=lambda buffer: buffer.size)
    if largest.size < _WORTH * subject.space.size:
        return
    replay, steps = subject.replay, subject.memory.steps
    few, many = (
        {buffer.id: (shrunk(buffer, buffer.size // chunks),) for buffer in logits}
        for chunks in (_CHUNKS, _MANY_CHUNKS)
    )
    least = replay.saved(few, [(0, steps, 2 * head.size)])
    most = replay.saved(many) + replay.holes
    shape = largest.elements
    where = f" at {last_parts(largest.source)}" if largest.source else ""
    yield Advice(
        rule="logits",
        title=f"compute the cross-entropy of {shape}{where} in chunks:"
        f" {format_bytes(largest.size)} each time",
        least=max(least, most // 4),
        most=most,
        cost="time: the logits are computed twice",
        how=_HOW.format(chunks=_CHUNKS),
        link=LINK,
    )


_HOW = """def chunk(total, part):  # hidden and labels of one chunk
    return total + jax.checkpoint(cross_entropy)(*part), None
def split(x):
    parts = x.reshape(x.shape[0], {chunks}, -1, *x.shape[2:])
    return jnp.moveaxis(parts, 1, 0)
total, _ = jax.lax.scan(chunk, 0.0, (split(hidden), split(labels)))"""


def _heads(subject: Case) -> Iterator[_Head]:
    for buffer in subject.memory.buffers:
        shape = parse_shape_or_none(buffer.shape)
        is_matrix = shape is not None and len(shape.dimensions) == 2
        if buffer.opcode == "parameter" and buffer.parameter and shape is not None and is_matrix:
            vocabulary = max(shape.dimensions)
            if vocabulary > max(_FEW, min(shape.dimensions)):
                yield _Head(vocabulary, buffer.size, tuple(shape.dimensions))


def _logits(subject: Case, head: _Head) -> list[Buffer]:
    """Values of the loss and its gradient with the vocabulary and all positions as dimensions."""
    found: list[tuple[int, Buffer]] = []
    for buffer in subject.replay.buffers:
        shape = parse_shape_or_none(buffer.shape)
        if shape is None or not shape.is_array or head.vocabulary not in shape.dimensions:
            continue
        is_of_loss = is_forward(buffer.op_name) or is_backward(buffer.op_name)
        is_of_loss = is_of_loss and "/while/" not in (buffer.op_name or "")
        is_wide = prod(shape.dimensions) > prod(head.dimensions)
        is_weight = sorted(shape.dimensions)[-2:] == sorted(head.dimensions) and not is_wide
        if is_of_loss and not is_weight:
            found.append((prod(shape.dimensions) // head.vocabulary, buffer))
    positions = Counter({number: 0 for number, _ in found})
    for number, buffer in found:
        positions[number] += buffer.size
    if not positions:
        return []
    most = max(positions, key=lambda number: positions[number])
    logits = [buffer for number, buffer in found if number == most and most > 1]
    return [] if _is_of_layers(logits) else logits


def _is_of_layers(values: list[Buffer]) -> bool:
    """Whether several products make equal values: it is the layers' width, not a vocabulary."""
    made = Counter(
        buffer.elements
        for buffer in values
        if is_forward(buffer.op_name) and (buffer.op_name or "").endswith("/dot_general")
        if buffer.opcode not in MOVES
    )
    return any(number > 1 for number in made.values())
