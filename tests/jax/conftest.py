"""Eight devices; and lets `make coverage` see the pass that XLA calls from threads of its own."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hlomem.jax.pass_ import hook
from hlomem.jax.pass_ import register as registration


@pytest.fixture(autouse=True, scope="session")
def _traced_passes() -> Iterator[None]:
    """Passes whose lines count, where lines are counted.

    A thread that Python did not start begins without the trace function every other thread has.
    """
    with pytest.MonkeyPatch.context() as patch:
        if threading.gettrace() is not None:
            register = hook.put_pass

            def register_traced(extension: Any, callback: Any, name: str, platform: str) -> None:
                register(extension, _traced(callback), name, platform)

            patch.setattr(registration, "put_pass", register_traced)
        yield


@pytest.fixture
def eight_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight virtual devices of the CPU, in children."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    monkeypatch.setenv("XLA_FLAGS", flags.strip())


def _traced(call: Callable[[bytes], bytes | None]) -> Callable[[bytes], bytes | None]:
    def run(proto: bytes) -> bytes | None:
        if sys.gettrace() is None:
            sys.settrace(threading.gettrace())
        return call(proto)

    return run
