"""Plans of a compiler that are kept: a program that was planned before is not compiled again.

In: a `Job`. Out: the bytes of its plan, and what is known of the program. A plan is found by a hash
of the lowered program and of all that decides how it is compiled.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hlomem.assign.footprint import footprint
from hlomem.base.atomic_files import write_files
from hlomem.base.json_bytes import decode_json
from hlomem.jax.compile.messages import Facts, Job
from hlomem.jax.compile.parent import ChildDiedError, PlannedProgram, plan_unless_known
from hlomem.jax.compile.processes import OwnProcess
from hlomem.jax.compile.serving import start_for
from hlomem.jax.modelled_run import model_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.jax.compile.processes import Start


class KnownPlan(Struct, frozen=True, kw_only=True):
    """The part of a plan that is kept."""

    size: int
    is_refused: bool
    host: int
    """Bytes in the host's memory."""
    roles: dict[str, int]
    """Bytes by what they are for."""
    flops: int | None
    """Of matrix products on one device; None where the plan has no program."""
    sent: int | None
    """Bytes that one device sends to others."""
    seconds: float | None
    """A run, as modelled; None where the speed of the machine is unknown."""


class FoundPlan(NamedTuple):
    """A plan, made now or known from before."""

    plan: KnownPlan
    facts: Facts
    program: PlannedProgram | None
    """The whole plan, where it was made now."""

    @property
    def cpu_seconds(self) -> float:
        """Of the compiler, now."""
        return 0.0 if self.program is None else self.program.cpu_seconds


def default_cache() -> Path:
    """The folder of the user's cache that plans are kept in."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "hlomem" / "plans"


class KnownPlans:
    """The plans in a folder."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache

    def plan(self, job: Job, timeout: float | None, on_progress: Callable[[], None]) -> FoundPlan:
        """The plan of a job's program."""
        try:
            done = self._plan(job, timeout, on_progress, start_for(job))
        except ChildDiedError:  # killed for the memory of others, perhaps
            done = self._plan(job, timeout, on_progress, OwnProcess)
        if isinstance(done, Facts):
            known = self._find(done)
            assert known is not None
            return FoundPlan(known, done, None)
        return self.keep(done)

    def _plan(
        self, job: Job, timeout: float | None, on_progress: Callable[[], None], start: Start
    ) -> PlannedProgram | Facts:
        return plan_unless_known(
            replace(job, has_fingerprint=True),
            lambda facts: self._find(facts) is not None,
            timeout=timeout,
            on_progress=lambda _: on_progress(),
            start=start,
        )

    def keep(self, done: PlannedProgram) -> FoundPlan:
        """Note a plan that was made."""
        memory = done.memory
        color = done.target.machine.host_color
        assignment = done.dump.assignment
        host = (
            0 if color is None or assignment is None else footprint(assignment.allocations, color)
        )
        run = model_run(done.dump.module, done.target) if done.dump.module is not None else None
        known = KnownPlan(
            size=memory.space.size,
            is_refused=bool(done.refusal),
            host=host,
            roles={share.role: share.size for share in memory.roles if share.size},
            flops=None if run is None else run.flops,
            sent=None if run is None else run.sent,
            seconds=None if run is None else run.seconds,
        )
        file = self._file(done.facts)
        write_files(file.parent, {file.name: [msgspec.json.encode(known)]}, force=True)
        return FoundPlan(known, done.facts, done)

    def _file(self, facts: Facts) -> Path:
        return self._cache / f"{facts.fingerprint}.json"

    def _find(self, facts: Facts) -> KnownPlan | None:
        """A plan made before; one that cannot be read is made again."""
        try:
            return decode_json(self._file(facts).read_bytes(), KnownPlan)
        except (OSError, msgspec.MsgspecError):
            return None
