"""Commands on hostile files, each under a limit of time and memory, in a process that may die."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.fuzz.entry_points import End, Outcome, run_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection


_COMMANDS = [
    f"hlomem.cli.{name}"
    for name in ("advise", "diff", "explain", "html", "improve", "peak", "replan", "show", "verify")
]
"""Modules every trial would import for itself."""


class Limits(NamedTuple):
    """What each command may take."""

    cpu_seconds: int = 5
    memory_bytes: int = 512 << 20
    """More than what the process that runs the tests holds already."""


class Trial(NamedTuple):
    """Files, one of which is hostile, and the commands to run on them."""

    files: Mapping[str, bytes]
    commands: Sequence[Sequence[str]]


def run_trial(trial: Trial) -> Iterator[Outcome]:
    """How the commands end in a folder with these files, which is the current one meanwhile."""
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name, data in trial.files.items():
                Path(name).write_bytes(data)
            for command in trial.commands:
                yield run_command(command)
        finally:
            os.chdir(home)


class LimitedProcess:
    """A forked process that runs trials one after the other; what passes a limit ends it.

    It is forked off this process, or off a server that has nothing but hlomem in it: what has run
    JAX has threads, which a fork does not survive.
    """

    def __init__(
        self,
        trials: Iterable[Trial],
        limits: Limits = Limits(),  # noqa: B008
        *,
        is_served: bool = False,
    ) -> None:
        self.limits = limits
        self.results, sender = multiprocessing.Pipe(duplex=False)
        context: Any = multiprocessing.get_context("forkserver" if is_served else "fork")
        if is_served:
            context.set_forkserver_preload([__name__, *_COMMANDS])
        self._process = context.Process(target=_work, args=(trials, limits, sender))
        self._process.start()
        sender.close()

    def receive(self) -> Outcome | None:
        """How the next command ended, None behind the last of a trial; EOFError at the end."""
        outcome: Outcome | None = self.results.recv()
        return outcome

    def death(self) -> Outcome:
        """The outcome of the command that the process died of."""
        self._process.join()
        code = self._process.exitcode
        said = f"the process died: {code}"
        if code == -signal.SIGPROF:
            said = f"more than {self.limits.cpu_seconds} s of CPU time"
        return Outcome(End.BUG, "killed", said)


def _work(trials: Iterable[Trial], limits: Limits, results: Connection) -> None:
    most = _held_bytes() + limits.memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for trial in trials:
        signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds)  # whose signal nobody handles
        for outcome in run_trial(trial):
            results.send(outcome)
            signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds)
        results.send(None)


def _held_bytes() -> int:
    """The address space of this process, where the system tells."""
    sizes = Path("/proc/self/statm")
    return int(sizes.read_text().split()[0]) * resource.getpagesize() if sizes.exists() else 0


def run_limited(trial: Trial, limits: Limits = Limits()) -> list[Outcome]:  # noqa: B008
    """How the commands of one trial end, each under the limits."""
    process = LimitedProcess([trial], limits, is_served=True)
    outcomes = []
    try:
        while (outcome := process.receive()) is not None:
            outcomes.append(outcome)
    except EOFError:
        outcomes.append(process.death())
    return outcomes
