"""The bytes that a traced program keeps: what loops stack, and what a backward pass reads again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.jax.compile.decisions import PLACING
from hlomem.jax.compile.flat_jaxprs import FlatJaxpr, bytes_of, inner_jaxprs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.jax.compile.flat_jaxprs import Step, Value

_KEEPING = PLACING | {"name", "reduce_precision", "optimization_barrier", "transpose"}
"""Operations after which an array is still the weights, gathered or not."""
_GRADIENT = "transpose("
"""In the names around what JAX computes of a function's gradient."""


class Kept(NamedTuple):
    """The bytes of whole arrays that are kept."""

    total: int
    placed: int
    """Of those that are arguments as they are, gathered or in another precision."""


def kept_bytes(jaxpr: Any) -> Kept:
    """Bytes of what the loops of a program stack, and of what its gradients read."""
    found = list(_kept(jaxpr))
    return Kept(sum(size for size, _ in found), sum(size for size, is_placed in found if is_placed))


def _kept(jaxpr: Any) -> Iterator[tuple[int, bool]]:
    """The bytes of each array that is kept, and whether it is an argument that was placed."""
    flat = FlatJaxpr(jaxpr)
    for value, readers in flat.readers.items():
        maker = flat.makers.get(value)
        if maker is not None and not _is_gradient(maker) and any(map(_is_gradient, readers)):
            yield bytes_of(_shape_of(maker, value)), _is_placed(flat, value)
    for step in flat.steps:
        if step.name == "scan":
            yield from _stacked(step)
        for part in inner_jaxprs(step.equation):
            yield from _kept(part)


def _stacked(step: Step) -> Iterator[tuple[int, bool]]:
    """The results of a loop that have one part of each iteration."""
    body = FlatJaxpr(step.params["jaxpr"])
    for at, inner in enumerate(step.params["jaxpr"].out_avals):
        whole = step.equation.outvars[at].aval
        if whole.shape != inner.shape:
            yield bytes_of(whole), _is_placed(body, body.results[at])


def _is_placed(flat: FlatJaxpr, value: Value) -> bool:
    """Whether a value is an argument of its jaxpr, as far as its numbers go."""
    while isinstance(value, int) and value in flat.makers:
        step = flat.makers[value]
        if step.name not in _KEEPING:
            return False
        value = step.inputs[step.outputs.index(value) if len(step.outputs) > 1 else 0]
    return isinstance(value, int) and value in flat.arguments


def _shape_of(step: Step, value: int) -> Any:
    return step.equation.outvars[step.outputs.index(value)].aval


def _is_gradient(step: Step) -> bool:
    sources = [one.source_info for one in (step.equation, step.call) if one is not None]
    return any(_GRADIENT in str(source.name_stack) for source in sources)
