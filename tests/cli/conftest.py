"""Running the command line as a user does, in this process."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from hlomem.cli import main


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
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs `hlomem` and tells what it printed."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments: str | Path, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(each) for each in arguments])
        out, err = capsysbinary.readouterr()
        return Result(code, out, err.decode("utf-8", "replace"))

    return call
