"""One fork server for each thread that plans, for the factory it plans last."""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING

from hlomem.jax.compile.parent import COMMON_ENVIRONMENT, search_path
from hlomem.jax.compile.processes import ForkServer, OwnProcess, Preparation, ServerLostError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hlomem.jax.compile.messages import Errand, Job
    from hlomem.jax.compile.processes import Process, Start

_Key = tuple[str, tuple[str, ...]]
_here = threading.local()
_servers: set[ForkServer] = set()
_cannot_fork: set[_Key] = set()
_lock = threading.Lock()


def start_for(job: Job) -> Start:
    """The way to start a job's process: where its imports are its own, by no server."""
    is_changed = bool(job.texts or job.decisions) or job.value is not None
    has_own_imports = is_changed or job.imports or job.has_calls
    return OwnProcess if has_own_imports else ServedStart(job)


class ServedStart:
    """Starts a job's process: a fork of this thread's server where it can have one."""

    def __init__(self, job: Job) -> None:
        path = search_path(job)
        self._key: _Key = (job.factory, tuple(path))
        self._preparation = Preparation(factory=job.factory, path=path)

    def __call__(self, errand: Errand, output: Path, environment: Mapping[str, str]) -> Process:
        try:
            server = self._server()
            if server is not None:
                return server.start(errand, output, environment)
        except ServerLostError:
            _cannot_fork.add(self._key)
            _forget()
        return OwnProcess(errand, output, environment)

    def _server(self) -> ForkServer | None:
        if self._key in _cannot_fork or not hasattr(os, "fork"):
            return None
        known: tuple[_Key, ForkServer] | None = getattr(_here, "server", None)
        if known is not None and known[0] == self._key and known[1] in _servers:
            return known[1]
        _forget()
        server = ForkServer(self._preparation, {**os.environ, **COMMON_ENVIRONMENT})
        with _lock:
            _servers.add(server)
        _here.server = (self._key, server)
        return server


def _forget() -> None:
    """End the server of this thread, if it has one."""
    known: tuple[_Key, ForkServer] | None = getattr(_here, "server", None)
    _here.server = None
    if known is not None:
        with _lock:
            _servers.discard(known[1])
        known[1].end()


def end_servers() -> None:
    """End the servers of all threads; the next job starts another."""
    with _lock:
        servers = list(_servers)
        _servers.clear()
    for server in servers:
        server.end()


atexit.register(end_servers)
