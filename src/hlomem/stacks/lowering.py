"""Programs that stacks lower, taken at the moment they would be compiled."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.errors import CommandError
from hlomem.base.source import visible
from hlomem.jax.compile.messages import TARGET
from hlomem.jax.target_kinds import Target, parse_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class StackProgram(NamedTuple):
    """A program as a stack has lowered it; what a factory may return."""

    lowered: Any
    compiler_options: Mapping[str, Any]
    command: str
    """The line that starts the stack with the same settings."""


class _LoweredSignal(BaseException):
    """Ends a stack's main function once it has a program; no handler of errors is to stop it."""


def lowered_by(run: Callable[[], Any], command: str = "") -> StackProgram:
    """The first program that a call compiles ahead of time, which it does not get to compile."""
    stages = import_module("jax").stages
    found: list[tuple[Any, Mapping[str, Any]]] = []

    def stop(lowered: Any, compiler_options: Any = None, **_: Any) -> Any:
        found.append((lowered, compiler_options or {}))
        raise _LoweredSignal

    original = stages.Lowered.compile
    stages.Lowered.compile = stop
    try:
        run()
    except _LoweredSignal:
        pass
    finally:
        stages.Lowered.compile = original
    if not found:
        raise CommandError("the stack ended without a program that it compiles ahead of time")
    return StackProgram(*found[0], command)


def import_stack(module: str, stack: str, install: str) -> Any:
    """A module of a stack; what is missing of it is named, with the line that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = visible(error.name or str(error))
        problem = f"{stack} cannot be imported: there is no module `{missing}`"
        raise CommandError(f"{problem}; {install} installs it") from error


def current_target() -> Target:
    """The target of the compile that a factory is called for."""
    name = os.environ.get(TARGET)
    if not name:
        raise CommandError("a stack's factory is called by hlomem: give it to compile or fit")
    return parse_target(name)
