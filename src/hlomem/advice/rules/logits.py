"""`logits`: compute the cross-entropy chunk by chunk; a possibility.

Applies if a softmax is taken, outside loops, over the vocabulary (a dimension of an argument) at
every position of a batch. The number of chunks divides the number of positions.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hlomem.advice.functions import last_parts
from hlomem.report.data.advice import Advice
from hlomem.report.data.phases import is_backward, is_forward
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.advice.case import Case
    from hlomem.report.data.memory import Buffer

LINK = "https://docs.jax.dev/en/latest/gradient-checkpointing.html"
_FEW = 1024
"""Number of classes up to which chunks save nothing."""
_WORTH = 0.02
"""Smallest fraction of the space that the logits must have."""
_CHUNKS = range(4, 33)
_NEAR = 8
_SOFTMAX = frozenset({"exp", "exp2", "reduce_max", "log_softmax", "logsumexp"})
"""The operations of a softmax, by JAX's names."""
_HOW = """import jax
import jax.numpy as jnp

def cross_entropy(hidden, labels):  # of one chunk, summed
    logits = jax.nn.log_softmax(hidden @ head)
    return -jnp.take_along_axis(logits, labels[..., None], -1).sum()

def chunk(total, part):
    return total + jax.checkpoint(cross_entropy)(*part), None

def split(x):  # {count} chunks along axis {axis}
    parts = x.reshape(*x.shape[:{axis}], {count}, -1, *x.shape[{next}:])
    return jnp.moveaxis(parts, {axis}, 0)

total, _ = jax.lax.scan(chunk, 0.0, (split(hidden), split(labels)))"""


def advise_logits(subject: Case) -> Iterator[Advice]:
    """One advice for the largest logits."""
    found = [buffer for buffer in subject.memory.buffers if _is_logits(subject, buffer)]
    largest = max(found, key=lambda buffer: buffer.size, default=None)
    if largest is None or largest.size < _WORTH * subject.space.size:
        return
    dimensions = _dimensions(largest)
    if not _has_softmax(subject, dimensions):
        return
    axis, count = _split(dimensions[:-1])
    if not count:
        return
    where = f" at {last_parts(largest.source)}" if largest.source else ""
    yield Advice(
        rule="logits",
        title=f"compute the cross-entropy of {largest.shape.partition('{')[0]}{where} in chunks",
        method="possible",
        confidence="low",
        cost="time: the logits are computed twice",
        how=_HOW.format(axis=axis, count=count, next=axis + 1),
        link=LINK,
    )


def _dimensions(buffer: Buffer) -> tuple[int, ...]:
    shape = parse_shape_or_none(buffer.shape)
    return tuple(shape.dimensions) if shape is not None and shape.is_array else ()


def _is_logits(subject: Case, buffer: Buffer) -> bool:
    """Whether a value of the loss has a vocabulary of an argument as last dimension."""
    name = buffer.op_name or ""
    if buffer.color != subject.space.color or "/while/" in name:
        return False
    if not (is_forward(name) or is_backward(name)):
        return False
    dimensions = _dimensions(buffer)
    return (
        2 <= len(dimensions) <= 3
        and dimensions[-1] > _FEW
        and prod(dimensions[:-1]) > 1
        and dimensions[-1] in _vocabularies(subject)
        and sorted(dimensions) not in _matrices(subject)
    )


def _matrices(subject: Case) -> list[list[int]]:
    buffers = subject.memory.buffers
    found = [_dimensions(buffer) for buffer in buffers if buffer.opcode == "parameter"]
    return [sorted(dimensions) for dimensions in found if len(dimensions) == 2]


def _vocabularies(subject: Case) -> set[int]:
    """The longer sides of matrices among the arguments."""
    return {longer for shorter, longer in _matrices(subject) if longer > shorter}


def _has_softmax(subject: Case, dimensions: Sequence[int]) -> bool:
    """Whether an exponential or maximum is taken of as many elements, along the same dimension."""
    return any(
        not _SOFTMAX.isdisjoint((instruction.metadata.op_name or "").split("/")[-2:])
        and any(
            shape.is_array
            and prod(shape.dimensions) == prod(dimensions)
            and dimensions[-1] in shape.dimensions
            for shape in (instruction.shape, *(operand.shape for operand in instruction.operands))
        )
        for instruction in subject.module.iter_instructions()
    )


def _split(positions: Sequence[int]) -> tuple[int, int]:
    """The dimension to split, the last that can be, and in how many chunks; 0 if none can."""
    for axis in reversed(range(len(positions))):
        counts = [count for count in _CHUNKS if positions[axis] % count == 0]
        if counts and positions[axis] > max(counts):
            return axis, min(counts, key=lambda count: abs(count - _NEAR))
    return 0, 0
