"""XLA's plan of a program, without the rest of the compile.

The child process is stopped as soon as the plan's files are complete, which another file tells:
libtpu writes them after a twentieth of a compile, and before it refuses a program. Where there is
no such file the compile is waited for. The child's process group is killed on every way out.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import CommandError, HlomemError
from hlomem.base.source import visible
from hlomem.dump.file_names import FILE_NAMES
from hlomem.jax.compile import messages
from hlomem.jax.compile.processes import OwnProcess
from hlomem.jax.function_memory import explained, read_dump
from hlomem.jax.target_kinds import MissingSoftwareError, Target, parse_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.api.explain import MemoryExplanation
    from hlomem.dump.dump import Dump
    from hlomem.jax.compile.processes import Ended, Start

_INTERVAL = 0.03
COMMON_ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
"""The child's own: no device of this machine is touched, no cache answers."""
_PLAN = ("after_optimizations.txt", *(name.suffix for name in dict.fromkeys(FILE_NAMES.values())))
"""How the names of a plan's files end."""
_MAX_OUTPUT = 8
"""Lines of what a child printed that an error shows."""


class CompileError(HlomemError):
    """A program that could not be compiled: says whose fault it was, and shows its last lines."""


class ChildDiedError(CompileError):
    """A child that ended without an answer; says what it did last."""

    def __init__(self, problem: str, doing: messages.Doing | None) -> None:
        super().__init__(problem)
        self.doing = doing


class PlannedProgram(NamedTuple):
    dump: Dump
    """Read whole; the folder it lay in may be gone."""
    facts: messages.Facts
    target: Target
    refusal: str
    """XLA's message where the program does not fit the target."""
    is_stopped: bool
    """Whether the compile was stopped once its plan was there."""
    seconds: float
    cpu_seconds: float
    """Of the child, until it was stopped."""
    output: str = ""
    """The text that the child printed, with the compiler's warnings."""

    @property
    def memory(self) -> MemoryExplanation:
        return explained(self.dump, self.target.machine, self.facts.results)


def plan_in_child(
    job: messages.Job,
    *,
    timeout: float | None = None,
    output: Path | None = None,
    is_full: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> PlannedProgram:
    """Plan a job in a child, its dump in `output`; `is_full` waits for the whole compile."""
    with _child_of(job, is_full=is_full) as child:
        facts = child.wait(timeout, lambda _: False, on_progress)
        planned = child.result(facts)
        if output is not None:
            child.keep_dump(output)
        return planned


def plan_unless_known(
    job: messages.Job,
    is_known: Callable[[messages.Facts], bool],
    *,
    timeout: float | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
    start: Start = OwnProcess,
) -> PlannedProgram | messages.Facts:
    """The same, but of a program that is known once it is lowered the facts are returned."""
    with _child_of(job, start=start) as child:
        facts = child.wait(timeout, is_known, on_progress)
        return facts if facts is not None and is_known(facts) else child.result(facts)


def link_in_child(
    job: messages.Job,
    *,
    timeout: float | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[messages.Facts, messages.Linked, bytes]:
    """Link a job's program in a child process: facts, outcome and executable."""
    with _child_of(job, is_full=True) as child:
        facts = child.wait(timeout, lambda _: False, on_progress)
        linked, executable = child.linked()
        assert facts is not None
        return facts, linked, executable


def kernels_in_child(
    job: messages.Job,
    *,
    timeout: float | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> bytes:
    """Measure the kernels of a job in a child process: its report, encoded."""
    with _child_of(job, is_full=True) as child:
        child.wait(timeout, lambda _: False, on_progress)
        return child.kernels()


@contextmanager
def _child_of(
    job: messages.Job, *, is_full: bool = False, start: Start = OwnProcess
) -> Iterator[_Child]:
    """A process that compiles a job's program; nothing of it is left afterwards."""
    target = parse_target(job.target)
    if not hasattr(os, "wait4"):
        raise CompileError("programs are compiled in a child process on Linux and macOS only")
    if target.missing:
        problem = f"cannot compile for {target.name}: {target.wanted} is not installed"
        raise MissingSoftwareError(f"{problem}\n  {target.missing}")
    folder = Path(mkdtemp(prefix="hlomem-"))
    try:
        yield _Child(job, target, folder, start, is_full=is_full)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Child:
    def __init__(
        self, job: messages.Job, target: Target, folder: Path, start: Start, *, is_full: bool
    ) -> None:
        self._job = job
        self._target = target
        self._folder = folder
        self._doing = "links" if job.is_linked else "plans"
        self._mark = "" if is_full else target.plan_mark
        (folder / messages.DUMP).mkdir()
        self._began = time.monotonic()
        self._is_stopped = False
        self._end_of_it: Ended | None = None
        self._plan_sizes: dict[Path, int] = {}
        errand = messages.Errand(job=job, folder=str(folder), path=search_path(job))
        self._process = start(errand, folder / messages.OUTPUT, environment_of(target))

    def wait(
        self,
        timeout: float | None,
        is_known: Callable[[messages.Facts], bool],
        on_progress: Callable[[str], None],
    ) -> messages.Facts | None:
        """Wait until the plan is there, the program is known, or the child has ended; it ends."""
        try:
            return self._watch(timeout, is_known, on_progress)
        finally:
            self._end()

    def _watch(
        self,
        timeout: float | None,
        is_known: Callable[[messages.Facts], bool],
        on_progress: Callable[[str], None],
    ) -> messages.Facts | None:
        facts = None
        while not self._has_ended():
            if facts is None:
                facts = messages.read_message(self._folder, messages.FACTS, messages.Facts)
                if facts is not None and is_known(facts):
                    return facts
            on_progress(self._words(facts))
            if facts is not None and self._is_planned(facts):
                self._is_stopped = True
                break
            if timeout is not None and time.monotonic() - self._began > timeout:
                doing = "lowered" if facts is None else "compiled"
                problem = f"`{visible(self._job.factory)}` was not {doing} in {timeout:g} s"
                raise CompileError(f"{problem}; --timeout gives it longer{self._said()}")
            time.sleep(_INTERVAL)
        return facts or messages.read_message(self._folder, messages.FACTS, messages.Facts)

    def _words(self, facts: messages.Facts | None) -> str:
        if self._job.kernels is not None:
            doing = messages.read_message(self._folder, messages.DOING, messages.Doing)
            return doing.words if doing else "starts"
        return "lowers" if facts is None else self._doing

    def _has_ended(self) -> bool:
        if self._end_of_it is None:
            self._end_of_it = self._process.ended(waits=False)
        return self._end_of_it is not None

    def _is_planned(self, facts: messages.Facts) -> bool:
        """Whether the next file is there, and those of the plan are not empty and do not grow."""
        if not self._mark:
            return False
        ours = f".{facts.module_name}."
        found = [path for path in (self._folder / messages.DUMP).iterdir() if ours in path.name]
        marks = [path for path in found if path.name.endswith(self._mark)]
        plan = {path: path.stat().st_size for path in found if path.name.endswith(_PLAN)}
        before, self._plan_sizes = self._plan_sizes, plan
        is_whole = len(plan) == len(_PLAN) and all(plan.values()) and plan == before
        return bool(marks) and is_whole

    def _end(self) -> None:
        """Nothing of it runs after this."""
        _kill_group(self._process.pid)  # also what it started, and left
        if self._end_of_it is None:
            self._end_of_it = self._process.ended(waits=True)
        self._process.close()

    def result(self, facts: messages.Facts | None) -> PlannedProgram:
        """The plan, or the error of the process that failed."""
        outcome = self._outcome()
        assert facts is not None
        return PlannedProgram(
            read_dump(self._folder / messages.DUMP, facts.module_name),
            facts,
            self._target,
            outcome.refusal if outcome else "",
            self._is_stopped,
            time.monotonic() - self._began,
            0.0 if self._end_of_it is None else self._end_of_it.cpu_seconds,
            (self._folder / messages.OUTPUT).read_text(errors="replace"),
        )

    def linked(self) -> tuple[messages.Linked, bytes]:
        """The outcome of linking, and the executable if there is one; or the error."""
        self._outcome()
        linked = messages.read_message(self._folder, messages.LINKED, messages.Linked)
        assert linked is not None
        file = self._folder / messages.EXECUTABLE
        return linked, b"" if linked.refusal else file.read_bytes()

    def kernels(self) -> bytes:
        """The encoded report on kernels; or the error."""
        self._outcome()
        return (self._folder / messages.KERNELS).read_bytes()

    def _outcome(self) -> messages.Outcome | None:
        outcome = messages.read_message(self._folder, messages.OUTCOME, messages.Outcome)
        if outcome is None and not self._is_stopped:
            doing = messages.read_message(self._folder, messages.DOING, messages.Doing)
            raise ChildDiedError(self._died(), doing)
        if outcome is not None and outcome.problem:
            raise self._failed(outcome)
        return outcome

    def keep_dump(self, output: Path) -> None:
        """Move the files of the dump into another folder."""
        output.mkdir(parents=True, exist_ok=True)
        for path in sorted((self._folder / messages.DUMP).iterdir()):
            shutil.move(path, output / path.name)

    def _failed(self, outcome: messages.Outcome) -> HlomemError:
        if outcome.kind == "usage":
            return CommandError(outcome.problem)
        if outcome.kind == "missing":
            return MissingSoftwareError(outcome.problem)
        if outcome.kind == "link":
            said = visible(outcome.problem.partition("\n")[0])
            return CompileError(f"cannot link `{visible(self._job.factory)}`: {said}")
        who = f"`{visible(self._job.factory)}` raised"
        if outcome.kind == "compiler":
            who = f"the compiler for {self._target.name} refused `{visible(self._job.factory)}`"
        trace = "".join(f"\n  {visible(line)}" for line in outcome.trace)
        problem = "\n  ".join(visible(line) for line in outcome.problem.split("\n")[:_MAX_OUTPUT])
        return CompileError(f"{who}: {problem}{trace}")

    def _died(self) -> str:
        code = None if self._end_of_it is None else self._end_of_it.code
        does = "links" if self._job.is_linked else "compiles"
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = signal.Signals(-code).name
            if -code == signal.SIGKILL:
                how += ", as when a machine runs out of memory"
        return f"the process that {does} `{visible(self._job.factory)}` died ({how}){self._said()}"

    def _said(self) -> str:
        lines = (self._folder / messages.OUTPUT).read_text(errors="replace").split("\n")
        last = [line for line in lines if line.strip()][-_MAX_OUTPUT:]
        return "".join(f"\n  {visible(line)}" for line in last)


def environment_of(target: Target) -> dict[str, str]:
    """The environment of a process that compiles for a target."""
    return {**target.environment, **os.environ, **COMMON_ENVIRONMENT, messages.TARGET: target.name}


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # no process is left in it
        os.killpg(pid, signal.SIGKILL)


def search_path(job: messages.Job) -> list[str]:
    """The folders this process finds modules in, and the one it runs in if the job may need it."""
    here = job.home or str(Path.cwd())
    path = [place or here for place in sys.path]
    return path if here in path or not job.is_from_here else [here, *path]
