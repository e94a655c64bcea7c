"""A target's plan of a Lowered, without the rest of the compile.

In: a Lowered for a machine that is not here. Out: the dump of its plan. Its compile is ended by an
exception of the hook once the module is scheduled; a child plans that module and is stopped, as for
`hlomem compile`. None where nothing can stand in for the program, or a compiler has no hook: then
only a whole compile tells.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import HlomemError
from hlomem.hlo.text.stack_frames import StackFrameTables
from hlomem.jax.compile.parent import CompileError
from hlomem.jax.compile.placeholder import plan_module
from hlomem.jax.compile.programs import cache_off, module_name
from hlomem.jax.pass_.hook import clear_pass, put_pass
from hlomem.proto.edit import name_of
from hlomem.proto.module import read_module

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.dump.dump import Dump
    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.hlo.text.stack_frames import Row
    from hlomem.jax.target_kinds import Target

_HOOK = "hlomem-early-plan"
_FRAMES, _PARENT = "StackFrames", "parent_frame_id"
_ENOUGH = "hlomem: the module is scheduled, and planned elsewhere"


def plan_lowered(lowered: Any, target: Target) -> Dump | None:
    """The plan of a program for a target; None where only a whole compile tells."""
    jax: Any = import_module("jax")
    has_devices = target.family in import_module("jax.extend.backend").backends()
    if not target.plan_mark or has_devices:
        return None
    try:
        proto = _scheduled(lowered, target.family)
        dump = plan_module(proto, target.name, target.family, has_same_layouts=True)
    except (ImportError, HlomemError, jax.errors.JaxRuntimeError):
        return None
    if dump.module is not None:
        _tell_lines(dump.module, read_module(proto))
    return dump


def _tell_lines(module: HloModule, given: HloModule) -> None:
    """Give a planned module the lines of the one that was handed over.

    XLA drops the tables of what a hook gives back, and numbers its frames otherwise.
    """
    known = {part.name: part.metadata for part in _instructions(given)}
    number_of: dict[int, int] = {}
    for part in _instructions(module):
        metadata, its = part.metadata, known.get(part.name)
        if its is not None and its.op_name == metadata.op_name:
            number_of.setdefault(metadata.stack_frame_id, its.stack_frame_id)
    tables = dict(given.stack_frame_tables.tables)
    frames = tables.get(_FRAMES, {})
    far = max(number_of, default=0) + 1
    moved = {number + far: _moved(row, far) for number, row in frames.items()}
    found = {new: moved[old + far] for new, old in number_of.items() if old + far in moved}
    module.stack_frame_tables = StackFrameTables.of_rows({**tables, _FRAMES: {**moved, **found}})


def _moved(row: Row, by: int) -> Row:
    """A frame whose caller has another number."""
    if isinstance(row, dict) and (parent := row.get(_PARENT, 1)) > 1:
        return {**row, _PARENT: parent + by}
    return row


def _instructions(module: HloModule) -> Iterator[HloInstruction]:
    for computation in module.computations:
        computation.ensure_read()
        yield from computation.instructions


def _scheduled(lowered: Any, platform: str) -> bytes:
    """The module as the compiler has scheduled it; `CompileError` where it shows none."""
    jax: Any = import_module("jax")
    extension: Any = import_module("jax.extend.xla")
    wanted, found = module_name(lowered), list[bytes]()

    def stop(proto: bytes) -> None:
        if name_of(bytes(proto)) == wanted:
            found.append(bytes(proto))
            raise RuntimeError(_ENOUGH)

    put_pass(extension, stop, _HOOK, platform)
    try:
        with cache_off():
            lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if _ENOUGH not in str(error):
            raise
    finally:
        clear_pass(extension, _HOOK, platform)
    if not found:
        raise CompileError(f"the compiler for {platform} handed its module to no pass")
    return found[0]
