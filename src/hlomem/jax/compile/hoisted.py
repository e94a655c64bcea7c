"""Gathers and constraints on all that a loop reads part by part, and loops that do them inside.

For a child process that does nothing else. In: what JAX is asked for while a function is traced.
Out: the rows of a loop as they were before, and a body that gathers each of them itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.jax.compile.flat_jaxprs import bytes_of
from hlomem.report.data.sharding.decision import Decision

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.report.data.sharding.decision import OtherDecision


class Hoisted(NamedTuple):
    """A value that was gathered, and how a part of its first dimension is gathered instead."""

    value: Any
    """Kept, so that no other has its `id`."""
    before: Any
    of_part: Callable[[Any], Any]
    decision: Decision | None
    """The gather or the constraint; None where it was only converted."""


class HoistedValues:
    """The values of a program that were gathered as a whole."""

    def __init__(self) -> None:
        self._known: dict[int, Hoisted] = {}

    def note(
        self,
        value: Any,
        before: Any,
        of_part: Callable[[Any], Any],
        decision: Decision | None = None,
    ) -> None:
        """A value that was made of another, as `of_part` makes each part of each part of that.

        Without a decision it is not gathered by this, but what it was made of may have been.
        """
        earlier = self._known.get(id(before))
        if earlier is not None:
            first, last = earlier.of_part, of_part
            before, of_part = earlier.before, lambda part: last(first(part))
            decision = decision or earlier.decision
        if len(getattr(value, "shape", ())) > 1:
            self._known[id(value)] = Hoisted(value, before, of_part, decision)

    def sunk(
        self,
        f: Callable[..., Any],
        rows: Any,
        note: Callable[[Decision], OtherDecision | None],
        frames: tuple[Any, ...],
    ) -> tuple[Callable[..., Any], Any]:
        """The body of a loop and its rows, with what the program is to do inside."""
        jax = import_module("jax")
        leaves, tree = jax.tree.flatten(rows)
        found: dict[int, Hoisted] = {}
        for at, leaf in enumerate(leaves):
            one = self._known.get(id(leaf))
            if one is None or one.decision is None:
                continue
            if note(_of_loop(one.decision, leaf, frames)) is not None:
                found[at] = one
        if not found:
            return f, rows

        def body(carry: Any, row: Any) -> Any:
            parts = jax.tree.leaves(row)
            for at, one in found.items():
                parts[at] = one.of_part(parts[at])
            return f(carry, jax.tree.unflatten(tree, parts))

        before = [found[at].before if at in found else leaf for at, leaf in enumerate(leaves)]
        return body, jax.tree.unflatten(tree, before)


def _of_loop(gathered: Decision, value: Any, frames: tuple[Any, ...]) -> Decision:
    """The decision that a loop reads what was gathered before it."""
    return Decision(
        kind="hoisted",
        shapes=(tuple(value.shape),),
        specs=gathered.specs,
        sizes=(bytes_of(value),),
        applied=gathered.applied,
        made=frames,
    )
