"""Opens the inputs of `explain`, `diff` and `advise` as a dump or a module.

An input is a path, a text, a dump, a plan, a module, or anything with `as_text()`, such as
`jax.jit(f).lower(x).compile()`; JAX is not imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

from hlomem import hlo
from hlomem.api.load import load_any
from hlomem.api.plan import Plan, plan
from hlomem.base.errors import CommandError
from hlomem.dump.dump import Dump
from hlomem.hlo.ir import HloModule
from hlomem.machines.registry import find_device
from hlomem.report.data.memory import MemoryView, build_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.machines.machine import Machine


@runtime_checkable
class Compiled(Protocol):
    """A compiled program that prints its HLO, as JAX's `Compiled` does."""

    def as_text(self) -> str | None:
        """The optimized, scheduled HLO."""


Subject: TypeAlias = "str | Path | Dump | Plan | HloModule | Compiled"
"""Any supported input."""


class OpenedSubject(NamedTuple):
    """A dump with its program, or a program without a plan."""

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
    if isinstance(subject, Plan):
        options = subject.stages.options
        return OpenedSubject(subject.dump, subject.stages.module, options.machine, is_planned=True)
    if isinstance(subject, HloModule):
        return OpenedSubject(None, subject)
    text = _text_of(subject)
    machine = machine_of(subject)
    return OpenedSubject(None, hlo.parse(text, f"<{type(subject).__name__}>"), machine)


def open_memory(
    subject: Subject,
    *,
    module: str | None = None,
    program: str | HloModule | None = None,
    machine: Machine | None = None,
    results: Sequence[str] = (),
) -> MemoryView:
    """The memory of a subject; a program without a plan is planned first."""
    opened = open_subject(subject, module=module)
    if opened.dump is None:
        assert opened.program is not None
        wanted = machine or opened.machine or ""
        made = plan(opened.program, backend=wanted, name=opened.program.name)
        opened = open_subject(made)
        assert opened.dump is not None
    given = hlo.parse(program) if isinstance(program, str) else program
    return build_memory(
        opened.dump,
        given or opened.program,
        machine or opened.machine,
        is_planned=opened.is_planned,
        results=results,
    )


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
