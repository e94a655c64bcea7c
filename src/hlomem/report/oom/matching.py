"""Finds the program that ran out of memory among several.

TPU compilers and newer GPU runtimes name it. Others give the bytes requested: a program's
temporaries are one allocation, so a program with an allocation of that size is the one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from hlomem.base.sizes import format_bytes
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.report.oom.log import Failure

_ROUNDING = 0.005
"""Relative error of a size printed in a larger unit."""


class SizedProgram(Protocol):
    """A program with the name XLA gives it, `jit_train_step`, and its reserved bytes."""

    @property
    def module_name(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def allocation_sizes(self) -> frozenset[int]: ...


_T = TypeVar("_T", bound=SizedProgram)


class Match(NamedTuple):
    """Why a program was chosen."""

    reason: str
    is_sure: bool


def match_failure(failure: Failure, programs: Sequence[_T]) -> tuple[_T, Match] | None:
    """The program of a message; the largest if several match."""
    if failure.module is not None:
        named = [program for program in programs if program.module_name == failure.module]
        if not named:
            return None
        return _nearest(named, failure.needed), Match("named by the error", is_sure=True)
    if failure.needed is None:
        return None
    exact = [program for program in programs if failure.needed in program.allocation_sizes]
    if exact:
        return _largest(exact, f"its allocation is the {failure.needed} bytes requested")
    near = [program for program in programs if _has_near(program, failure.needed)]
    if near:
        asked = format_bytes(failure.needed)
        return _largest(near, f"one of its allocations is about the {asked} requested")
    return None


def _nearest(programs: Sequence[_T], needed: int | None) -> _T:
    """The program whose size is nearest to the error's; the last one if it gives none."""
    if needed is None:
        return programs[-1]
    return min(reversed(programs), key=lambda program: abs(program.size - needed))


def _largest(programs: Sequence[_T], reason: str) -> tuple[_T, Match]:
    found = max(reversed(programs), key=lambda program: program.size)
    others = len({program.module_name for program in programs} - {found.module_name})
    more = f"; {plural(others, 'other program')} would match, too" if others else ""
    return found, Match(f"{reason}{more}", is_sure=not others)


def _has_near(program: SizedProgram, needed: int) -> bool:
    return any(abs(size - needed) <= _ROUNDING * needed for size in program.allocation_sizes)
