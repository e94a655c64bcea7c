"""Of several programs the one that ran out of memory, as far as the message tells.

In: a `Failure` and programs with their names and the sizes of their allocations. Out: a program and
the reason, or none. TPU's compiler and newer GPU runtimes name the program. Elsewhere the runtime
says how many bytes it asked for: the temporaries of a program are one allocation, so that a program
with an allocation of just this size is the one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from hlomem.base.sizes import format_bytes
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.report.oom.log import Failure

_ROUNDING = 0.005
"""How far a size that was printed in a larger unit may be from the bytes."""


class Candidate(Protocol):
    """A program that may be the one."""

    @property
    def module_name(self) -> str:
        """XLA's name of it: `jit_train_step`."""

    @property
    def size(self) -> int:
        """Bytes it reserves in device memory."""

    @property
    def allocation_sizes(self) -> frozenset[int]:
        """Bytes of each of its allocations."""


_T = TypeVar("_T", bound=Candidate)


class Match(NamedTuple):
    """Why a program was taken."""

    reason: str
    is_sure: bool


def match_failure(failure: Failure, programs: Sequence[_T]) -> tuple[_T, Match] | None:
    """The program a message is about; of several that fit it, the largest."""
    if failure.module is not None:
        named = [program for program in programs if program.module_name == failure.module]
        if not named:
            return None
        return _nearest(named, failure.needed), Match("named by the error", is_sure=True)
    if failure.needed is None:
        return None
    exact = [program for program in programs if failure.needed in program.allocation_sizes]
    if exact:
        return _largest(exact, f"its allocation is the {failure.needed} bytes asked for")
    near = [program for program in programs if _has_near(program, failure.needed)]
    if near:
        asked = format_bytes(failure.needed)
        return _largest(near, f"one of its allocations is the {asked} asked for, as far as printed")
    return None


def _nearest(programs: Sequence[_T], needed: int | None) -> _T:
    """The program whose size is nearest to what the error says; the last one where it is silent."""
    if needed is None:
        return programs[-1]
    return min(reversed(programs), key=lambda program: abs(program.size - needed))


def _largest(programs: Sequence[_T], reason: str) -> tuple[_T, Match]:
    found = max(reversed(programs), key=lambda program: program.size)
    others = len({program.module_name for program in programs} - {found.module_name})
    more = f"; {plural(others, 'other program')} would fit it, too" if others else ""
    return found, Match(f"{reason}{more}", is_sure=not others)


def _has_near(program: Candidate, needed: int) -> bool:
    return any(abs(size - needed) <= _ROUNDING * needed for size in program.allocation_sizes)
