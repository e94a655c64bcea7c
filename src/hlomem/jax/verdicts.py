"""`hlomem.jax.fits`: whether a program fits a target, for launchers, tests and fallback pools.

if not (verdict := hlomem.jax.fits("train:make_step", "tpu-v4:2x2x1", settings={"batch": 8})):
    raise SystemExit(str(verdict))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hlomem.base.errors import CommandError
from hlomem.base.sizes import format_bytes
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import plan_in_child
from hlomem.jax.fitting import limit_of
from hlomem.jax.function_memory import memory
from hlomem.jax.target_kinds import parse_target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.api.explain import MemoryExplanation


class FitsVerdict(Struct, frozen=True, kw_only=True):
    """The verdict on a program: true if it fits; printed, one line."""

    target: str
    needs: int
    """Bytes of one device."""
    capacity: int
    """Bytes that it has."""

    def __bool__(self) -> bool:
        return self.needs <= self.capacity

    def __str__(self) -> str:
        sizes = f"needs {format_bytes(self.needs)} of {format_bytes(self.capacity)}"
        if self:
            return f"fits: {self.target} {sizes}"
        missing = format_bytes(self.needs - self.capacity)
        return f"does not fit: {self.target} {sizes}, {missing} too much"


def fits(
    subject: Any,
    target: str,
    /,
    *arguments: Any,
    settings: Mapping[str, Any] | None = None,
    jit: Mapping[str, Any] | None = None,
    capacity: str | int | None = None,
    **keywords: Any,
) -> FitsVerdict:
    """The verdict of whether a program fits a target, by the plan of the target's compiler.

    `subject` is a factory of `hlomem compile` by name, called with `settings`, or a function of
    `hlomem.jax.memory` with its `arguments`. `capacity` is what a device has, by default what the
    target's has.
    """
    where = parse_target(target)
    limit = limit_of(where, capacity)
    found = memory_of(
        subject, *arguments, target=where.name, settings=settings, jit=jit, **keywords
    )
    return FitsVerdict(target=where.name, needs=found.needs, capacity=limit.size)


def memory_of(
    subject: Any,
    /,
    *arguments: Any,
    target: str | None,
    settings: Mapping[str, Any] | None = None,
    jit: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> MemoryExplanation:
    """The memory of a factory's program, or of a function's."""
    if not isinstance(subject, str):
        if settings:
            raise CommandError("settings are those of a factory, which is given by its name")
        return memory(subject, *arguments, target=target, jit=jit, **keywords)
    if arguments or keywords or jit:
        raise CommandError("a factory takes settings: its program has its own arguments")
    job = Job(factory=subject, target=target or "cpu", settings=dict(settings or {}))
    return plan_in_child(job).memory


def limit_on(target: str) -> int | None:
    """Bytes that one device of a target has for programs; None where it has what the host has."""
    own = parse_target(target).capacity
    return None if own is None else own.size
