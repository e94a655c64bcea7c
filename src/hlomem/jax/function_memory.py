"""`hlomem.jax.memory`: explains the memory of a function's compiled program.

    hlomem.jax.memory(train_step, params, batch, target="tpu-v5e:2x2", jit={"donate_argnums": 0})

A function or a Lowered is compiled once more, for its dump, which is read and removed; for a target
that is not here until its plan is complete. A Compiled is not: XLA's plan is in the executable. JAX
is used by its public functions and never changed.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hlomem.api.explain import MemoryExplanation, explain
from hlomem.api.load import hold_whole, load
from hlomem.api.opening import machine_of
from hlomem.api.protos import open_chosen, programs_in
from hlomem.base.errors import CommandError, InputError
from hlomem.dump.dump import Dump
from hlomem.jax.compile.programs import lower, module_name, result_names, write_dump
from hlomem.jax.target_kinds import MissingSoftwareError, Target, parse_target
from hlomem.machines.capacity import capacity_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.ir import HloModule
    from hlomem.machines.machine import Machine


def memory(
    subject: Any,
    /,
    *arguments: Any,
    target: str | None = None,
    jit: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> MemoryExplanation:
    """Explains the memory of a function: a function, jitted or not, a Lowered or a Compiled.

    A function takes its arguments, arrays or `jax.ShapeDtypeStruct`s, after it; `jit` has the
    options of `jax.jit` for one that is not jitted. `target` names the machine to compile for
    (`hlomem.jax.targets()` lists them), by default the one JAX runs on.
    """
    stages = _stages()
    subject = _unwrapped(subject, stages)
    chosen = None if target is None else parse_target(target)
    if isinstance(subject, stages.Compiled | stages.Lowered):
        _refuse(subject, arguments or keywords, jit, target)
    if isinstance(subject, stages.Compiled):
        return memory_of_compiled(subject)
    if not isinstance(subject, stages.Lowered):
        subject = lower(subject, arguments, keywords, chosen, jit)
    if chosen is not None:
        from hlomem.jax.compile.early_plan import plan_lowered  # noqa: PLC0415 - only for targets

        early = plan_lowered(subject, chosen)
        if early is not None:
            return explained(early, chosen.machine, result_names(subject))
    return memory_of_lowered(subject, chosen)


def memory_of_lowered(lowered: Any, target: Target | None = None) -> MemoryExplanation:
    """The memory of a Lowered, compiled with a dump in a folder that is gone afterwards."""
    with TemporaryDirectory(prefix="hlomem-") as folder:
        done = write_dump(lowered, Path(folder))
        dump = read_dump(Path(folder), module_name(lowered))
    machine = machine_of(done.compiled) if target is None else target.machine
    return explained(dump, machine, result_names(lowered))


def memory_of_compiled(compiled: Any) -> MemoryExplanation:
    """The memory of a Compiled: XLA's plan in its executable, or else its text, planned again."""
    machine = machine_of(compiled)
    dump = dump_of(compiled)
    if dump is None:
        return explain(compiled)
    return explained(dump, machine, result_names(compiled))


def read_dump(folder: Path, module: str) -> Dump:
    """The dump of a module in a folder, with its program, both read whole."""
    dump = hold_whole(load(folder, module=module))
    program = dump.module
    generated = None if dump.open_codegen is None else dump.open_codegen()
    return replace(
        dump,
        chosen="",
        open_module=None if program is None else lambda: program,
        open_codegen=None if generated is None else lambda: generated,
    )


def explained(
    dump: Dump, machine: Machine | None, results: tuple[str, ...] = ()
) -> MemoryExplanation:
    found = explain(dump, machine=machine, results=results)
    found.capacity = capacity_of(machine.chip_name) if machine is not None else None
    return found


def _stages() -> Any:
    try:
        return import_module("jax").stages
    except ImportError as error:
        problem = f"hlomem.jax.memory needs jax, which cannot be imported ({error})"
        raise MissingSoftwareError(f"{problem}\n  pip install 'hlomem[jax]'") from error


def _unwrapped(subject: Any, stages: Any) -> Any:
    """A stage of JAX's; nnx.jit and eqx.filter_jit wrap theirs."""
    for name, kind in (("lowered", stages.Lowered), ("compiled", stages.Compiled)):
        if isinstance(inner := getattr(subject, name, None), kind):
            return inner
    return subject


def _refuse(subject: Any, arguments: Any, jit: Any, target: str | None) -> None:
    """A program that is lowered has its arguments, options and devices already."""
    given = [("arguments", arguments), ("`jit`", jit), ("`target`", target)]
    if found := [what for what, value in given if value]:
        name = type(subject).__name__
        raise CommandError(f"a {name} has its own {' and '.join(found)}: give the function instead")


_MAX_BYTES = 4 << 30


def dump_of(compiled: Any) -> Dump | None:
    """The plan in an executable; None where it does not give itself away."""
    data = _serialized(compiled)
    if not data:
        return None
    try:
        opened: Dump | HloModule = open_chosen(
            programs_in(data, "the executable", _MAX_BYTES), None, "", as_program=False
        )
    except InputError:  # another form than those known: its text is still there
        return None
    return opened if isinstance(opened, Dump) else None


def _serialized(compiled: Any) -> bytes:
    """An executable's bytes; none where its runtime does not serialize."""
    try:
        return bytes(compiled.runtime_executable().serialize())
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return b""
