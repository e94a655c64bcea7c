"""Asks a process to probe a factory, and waits for its answers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import msgspec

from hlomem.jax.compile.messages import Errand, read_message
from hlomem.jax.compile.parent import environment_of, search_path
from hlomem.jax.probes.messages import Probe, Survey, Traced
from hlomem.jax.target_kinds import HostTarget, parse_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from hlomem.jax.compile.messages import Job

_PACKAGE_HOME = str(Path(__file__).parents[3])
_CHILD = "import sys; sys.path[:0] = sys.argv[1:]; from hlomem.jax.probes.child import main; main()"
_COUNT = "--xla_force_host_platform_device_count"
_INTERVAL = 0.02
_SECONDS = 60
"""For one probe."""


class Prober:
    """A process that traces a factory with other values in its source."""

    def __init__(self, job: Job, seconds: float) -> None:
        """`seconds` is for all probes; those after it have no answer."""
        self._until = time.monotonic() + seconds
        self._folder = Path(mkdtemp(prefix="hlomem-"))
        self._numbers = count()
        self._process = subprocess.Popen(  # noqa: S603 - Python itself
            [sys.executable, "-P", "-c", _CHILD, _PACKAGE_HOME],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_environment(job),
            process_group=0,
        )
        errand = Errand(job=job, folder=str(self._folder), path=search_path(job))
        workers = os.cpu_count() or 1
        self._say(msgspec.json.encode(Survey(errand=errand, workers=workers, seconds=_SECONDS)))

    def __enter__(self) -> Prober:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def trace(self, changes: Iterable[tuple[str, ...]]) -> list[Traced | None]:
        """The program with each change, a key, a word and a site if it has one.

        None where no answer came in time.
        """
        probes = [
            Probe(number=next(self._numbers), key=key, change=change, site="".join(site))
            for key, change, *site in changes
        ]
        self._say(msgspec.json.encode(probes))
        return list(self._answers(probes))

    def _answers(self, probes: list[Probe]) -> Iterator[Traced | None]:
        for probe in probes:
            found = read_message(self._folder, probe.file, Traced)
            while found is None and self._is_working():
                time.sleep(_INTERVAL)
                found = read_message(self._folder, probe.file, Traced)
            yield found

    def _is_working(self) -> bool:
        return time.monotonic() < self._until and self._process.poll() is None

    def _say(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has died, which is found later
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()


def _environment(job: Job) -> dict[str, str]:
    """That of a process with as many devices as the target has, all of them the host's."""
    target = parse_target(job.target)
    environment = environment_of(target)
    if not isinstance(target, HostTarget):
        devices = target.device_count
        flags = re.sub(rf"{_COUNT}=\d+", "", environment.get("XLA_FLAGS", ""))
        environment["XLA_FLAGS"] = f"{flags} {_COUNT}={devices}".strip()
    return environment
