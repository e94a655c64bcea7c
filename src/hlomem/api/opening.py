"""Opens any supported input as a `MemoryView`: a dump is read, a module is planned first.

An input is a path, a text, a dump, a plan, a module, or anything with `as_text()`, such as
`jax.jit(f).lower(x).compile()`; JAX is not imported. Dumps are opened without the planner.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

from hlomem import hlo
from hlomem.api.load import load_any
from hlomem.base.errors import CommandError
from hlomem.dump.dump import Dump
from hlomem.hlo.ir import HloModule
from hlomem.machines.registry import find_device, given_machine
from hlomem.report.data.memory import MemoryView, build_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.api.plan import Plan
    from hlomem.machines.machine import Machine
    from hlomem.pipeline import Stages


@runtime_checkable
class Compiled(Protocol):
    """A compiled program that prints its HLO, as JAX's `Compiled` does."""

    def as_text(self) -> str | None:
        """The optimized, scheduled HLO."""


Subject: TypeAlias = "str | Path | Dump | Plan | HloModule | Compiled"


class OpenedSubject(NamedTuple):
    dump: Dump | None
    program: HloModule | None
    machine: Machine | None = None
    is_planned: bool = False


def open_subject(subject: Subject, *, module: str | None = None) -> OpenedSubject:
    """The dump if there is one, else the program; `module` chooses from a folder."""
    if isinstance(subject, str | Path):
        subject = load_any(subject, module=module)
    elif module is not None:
        raise CommandError("a module is chosen from a folder; no folder was given")
    if isinstance(subject, Dump):
        return OpenedSubject(subject, subject.module)
    if isinstance(subject, HloModule):
        return OpenedSubject(None, subject)
    from hlomem.api.plan import Plan  # noqa: PLC0415 - dumps are opened without the planner

    if isinstance(subject, Plan):
        options = subject.stages.options
        return OpenedSubject(subject.dump, subject.stages.module, options.machine, is_planned=True)
    text = _text_of(subject)
    machine = machine_of(subject)
    return OpenedSubject(None, hlo.parse(text, f"<{type(subject).__name__}>"), machine)


def open_memory(
    subject: Subject,
    *,
    module: str | None = None,
    program: str | HloModule | None = None,
    backend: str | Machine = "",
    chip: str = "",
    era: str = "",
    schedule: Dump | None = None,
    order: str = "xla",
    name: str = "",
    results: Sequence[str] = (),
) -> MemoryView:
    """The memory of a subject; a program without a plan is planned as by `hlomem.plan`.

    `module` chooses a program of a folder; `program` is the module of a dump without HLO text next
    to it. `backend` and the arguments after it are those of `hlomem.plan`; `results` are the paths
    of the program's outputs, in order.
    """
    opened = open_subject(subject, module=module)
    given = hlo.parse(program) if isinstance(program, str) else program
    if opened.dump is not None:
        for word, value in (("era", era), ("schedule", schedule)):
            if value:
                raise CommandError(f"`{word}` is for an HLO module; a dump has its own")
        return build_memory(
            opened.dump,
            given or opened.program,
            given_machine(backend, chip) or opened.machine,
            is_planned=opened.is_planned,
            results=results,
        )
    assert opened.program is not None
    from hlomem.api.plan import plan  # noqa: PLC0415 - as above

    made = plan(
        opened.program,
        backend=backend if backend or chip else opened.machine or "",
        chip=chip,
        era=era,
        schedule=schedule,
        order=order,
        name=name or opened.program.name,
    )
    return build_memory(
        made.dump,
        given or (made.stages.module if schedule is None else _scheduled(made.stages)),
        made.stages.options.machine,
        is_planned=True,
        results=results,
        notes=made.notes,
    )


def _scheduled(stages: Stages) -> HloModule:
    """The program in the order that it was given, as text that carries one."""
    from hlomem.hlo.rewrite import Rewriter  # noqa: PLC0415 - few need it
    from hlomem.hlo.schedule import running_computations  # noqa: PLC0415 - as above

    rewriter = Rewriter(stages.module)
    rewriter.schedule(
        {
            computation: stages.schedule.sequence(computation)
            for computation in running_computations(stages.module)
        }
    )
    return rewriter.finish()


def machine_of(compiled: object) -> Machine | None:
    """The machine of a compiled program's devices, by its shardings; None if unknown."""
    pending = [getattr(compiled, name, None) for name in ("input_shardings", "output_shardings")]
    while pending:
        tree = pending.pop(0)
        if isinstance(tree, dict):
            pending += tree.values()
        elif isinstance(tree, tuple | list):
            pending += tree
        else:
            for device in getattr(tree, "device_set", ()):
                return find_device(device.platform, device.device_kind)
    return None


def _text_of(subject: object) -> str:
    if not isinstance(subject, Compiled):
        raise CommandError(
            f"a `{type(subject).__name__}` is not supported: give a path, a text, a dump,"
            " a plan, an HLO module or a compiled program, jax.jit(f).lower(…).compile()"
        )
    text = subject.as_text()
    if not text:
        raise CommandError(f"`{type(subject).__name__}.as_text()` gives no HLO")
    if not text.lstrip().startswith("HloModule"):
        raise CommandError(
            f"`{type(subject).__name__}.as_text()` is not HLO: compile it first,"
            " jax.jit(f).lower(…).compile()"
        )
    return text
