"""Running the command line as a user does."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: bytes
    err: str


class Run(Protocol):
    """Runs `hlomem` with arguments."""

    def __call__(self, *arguments: str | Path, stdin: bytes = b"") -> Result: ...


@pytest.fixture
def run() -> Run:
    """A function that runs `hlomem` in a process of its own."""

    def call(*arguments: str | Path, stdin: bytes = b"") -> Result:
        command = [sys.executable, "-m", "hlomem", *map(str, arguments)]
        done = subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=60)
        return Result(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))

    return call
