"""The compiler that calls a hook, as searches ask it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.opt.search import Compiler
from hlomem.proto.edit import write_module, write_orders
from hlomem.proto.module import read_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.opt.candidate import Candidate


def compiler_of(plan: Callable[[bytes], int] | None = None) -> Compiler:
    """The compiler that calls a hook; `plan` asks it what a module needs."""
    return Compiler(write_candidate, read_module, plan)


def write_candidate(candidate: Candidate) -> bytes:
    """A candidate as the module that was handed over, changed."""
    if candidate.changes or candidate.edit is not None:
        return write_module(candidate.module)
    return write_orders(candidate.given.stages.module, candidate.orders)
