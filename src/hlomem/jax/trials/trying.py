"""Changes compiled by XLA, one by one and together.

In: a `Job` and `Change`s. Out: for each, the bytes of XLA's plan of the changed program, and its
price. Each is compiled in a child that is stopped once the plan is there; what was planned before
is taken from a folder.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem.base.errors import HlomemError
from hlomem.base.sizes import format_bytes
from hlomem.jax.compile.parent import CompileError
from hlomem.jax.trials.source_edits import apply, draw_diff

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hlomem.jax.compile.messages import Job
    from hlomem.jax.known_plans import FoundPlan, KnownPlans
    from hlomem.jax.trials.changes import Change
    from hlomem.jax.trials.source_edits import Edit

_MAX_CHILDREN = 4
_MAX_PROBLEM = 200


class Tried(NamedTuple):
    """Changes that were compiled together."""

    changes: tuple[Change, ...]
    found: FoundPlan | None
    """None where they could not be compiled."""
    problem: str = ""
    edits: tuple[Edit, ...] = ()

    @property
    def size(self) -> int:
        assert self.found is not None
        return self.found.plan.size

    @property
    def is_refused(self) -> bool:
        return self.found is None or self.found.plan.is_refused

    def how(self) -> str:
        """One diff, and what cannot be said as one."""
        texts = apply(self.edits) or {}
        code = [change.code for change in self.changes if not change.edits and change.code]
        return "\n".join([*code, draw_diff(texts).rstrip("\n")]).strip("\n")


class Trials:
    """Compiles changes of one program."""

    def __init__(
        self,
        job: Job,
        base: FoundPlan,
        known: KnownPlans,
        timeout: float | None,
        on_progress: Callable[[str], None],
    ) -> None:
        self._job = job
        self.base = base
        self._known = known
        self._timeout = timeout
        self._on_progress = on_progress

    def try_all(self, changes: Sequence[Change]) -> list[Tried]:
        """Each change on its own, several at a time."""
        workers = max(1, min(_MAX_CHILDREN, (os.cpu_count() or 2) // 2))
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(lambda change: self.try_together((change,)), changes))

    def try_together(self, changes: tuple[Change, ...]) -> Tried:
        """Changes taken together; a problem in words where that cannot be."""
        tried = self._try(changes)
        for number in range(max(len(change.instead) for change in changes)):
            if tried.found is not None:
                break
            others = tuple(_other(change, number) for change in changes)
            again = self._try(others)
            tried = again if again.found is not None else tried
        return tried

    def _try(self, changes: tuple[Change, ...]) -> Tried:
        edits = tuple(edit for change in changes for edit in change.edits)
        texts = apply(edits)
        if texts is None:
            return Tried(changes, None, "the edits are in each other's way")
        job = replace(
            self._job,
            texts=texts,
            jit=dict(option for change in changes for option in change.jit),
            arguments=dict(pair for change in changes for pair in change.arguments),
            decisions=tuple(one for change in changes for one in change.decisions),
            value=next((change.value for change in changes if change.value is not None), None),
            has_mesh=any(change.has_mesh for change in changes),
            result_shardings=dict(pair for change in changes for pair in change.results),
            imports=(*self._job.imports, *(name for change in changes for name in change.imports)),
        )
        words = changes[0].title if len(changes) == 1 else f"{len(changes)} changes of"
        try:
            found = self._known.plan(job, self._timeout, lambda: self._on_progress(words))
        except (CompileError, HlomemError) as error:
            return Tried(changes, None, _first_line(str(error)))
        return Tried(changes, found, edits=edits)

    def without_dominated(self, tried: Sequence[Tried]) -> list[Tried]:
        """Changes of which no other recomputes as little or less for as much or more."""

        def is_dominated(one: Tried, number: int) -> bool:
            mine = self.more_flops(one)
            return any(
                other.changes[0].sites == one.changes[0].sites
                and (other.size, place) < (one.size, number)
                and mine is not None
                and (theirs := self.more_flops(other)) is not None
                and theirs <= mine
                for place, other in enumerate(tried)
            )

        return [one for number, one in enumerate(tried) if not is_dominated(one, number)]

    def cost(self, tried: Tried) -> str:
        """The price: products recomputed, bytes moved to the host, and words."""
        assert tried.found is not None
        words = []
        more = self.more_flops(tried)
        if more is not None and any(change.effort for change in tried.changes):
            words.append(f"{more:+.1%} FLOPs of matrix products")
        if moved := tried.found.plan.host - self.base.plan.host:
            words.append(f"{format_bytes(moved)} to the host's memory and back")
        if words:
            words += [change.cost for change in tried.changes if not change.effort]
        return "; ".join(dict.fromkeys(words or [change.cost for change in tried.changes]))

    def more_flops(self, tried: Tried) -> float | None:
        """The matrix products that a change adds, as a share; None if they are not known."""
        before = self.base.facts.flops
        after = None if tried.found is None else tried.found.facts.flops
        return (after - before) / before if before and after else None


def _other(change: Change, number: int) -> Change:
    """A change by other edits, as far as it has some."""
    edits = (change.edits, *change.instead)[min(number + 1, len(change.instead))]
    return change._replace(edits=edits, instead=())


def _first_line(problem: str) -> str:
    head = problem.partition("\n")[0]
    return head if len(head) < _MAX_PROBLEM else f"{head[:_MAX_PROBLEM]}…"
