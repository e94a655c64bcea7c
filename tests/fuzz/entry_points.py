"""Runs commands on a hostile input, in this process, and judges how they end.

Good ends are: it works (0), it finds something (1), or it refuses with file, line and reason (3).
A refusal without a line is counted; everything else is a finding.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import EXIT_FINDING, EXIT_OK, EXIT_UNREADABLE, EXIT_USAGE
from hlomem.cli import main
from tests.fuzz.kernels import call_kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLACED = re.compile(r"(?m)^error: [^\n]+?:\d+:\d+: [^\n]+\n\d+ \| ")
_NO_TEXT = re.compile(r"(?m)^error: [^\n]+\.pb: [^\n]{10}")
"""A refusal of what has no lines."""
_ASKS = re.compile(
    r"error: (?:no buffer `|[^\n]+: compiled for [^\n]+ give one of "
    r"|[^\n]+: (?:the profile is cut off: [^\n]+; )?no allocator wrote events: "
    r"|nothing happened before )"
)
"""What only the user can answer: another name, the chip, another profile or time."""
_UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class End(Enum):
    """How a command ended."""

    ACCEPTED = "accepted"
    REFUSED = "refused with file, line and reason"
    UNPLACED = "refused without a line"
    BUG = "a bug"


class Outcome(NamedTuple):
    """How a command ended, and what it said."""

    end: End
    command: str
    said: str


def run_command(arguments: Sequence[str]) -> Outcome:
    """How one command line ends."""
    if arguments[0] == "kernels":
        return _run_kernels(arguments)
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="")
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogatepass", newline="")
    with redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
        out.flush()
        err.flush()
    shown = out.buffer.getvalue().decode("utf-8", "replace")
    said = err.buffer.getvalue().decode("utf-8", "replace")
    return Outcome(_judge(arguments, code, shown, said), arguments[0], said or f"exit code {code}")


def _run_kernels(arguments: Sequence[str]) -> Outcome:
    """How native kernels take texts and numbers that no reader has looked at before."""
    try:
        call_kernels(Random(arguments[1]))  # noqa: S311
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        return Outcome(End.BUG, arguments[0], f"{type(error).__name__}: {error}")
    return Outcome(End.ACCEPTED, arguments[0], "")


def _judge(arguments: Sequence[str], code: int, shown: str, said: str) -> End:
    prints_bytes = arguments[0] in {"fmt", "plan"}  # which give back what the input held
    if _UNSAFE.search(said) or (not prints_bytes and _UNSAFE.search(shown)):
        return End.BUG
    if code in {EXIT_OK, EXIT_FINDING}:
        return End.ACCEPTED
    if code == EXIT_USAGE and _ASKS.match(said):
        return End.REFUSED
    if code != EXIT_UNREADABLE or "not enough memory" in said:
        return End.BUG
    is_placed = _PLACED.search(said) or _NO_TEXT.search(said)
    return End.REFUSED if is_placed else End.UNPLACED
