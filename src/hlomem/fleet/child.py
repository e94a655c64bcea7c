"""The worker process that reads units; after `READY`, msgpack with a length of four bytes."""

from __future__ import annotations

import gc
import os
import signal
import struct
import sys
from typing import BinaryIO

import msgspec

from hlomem.base.gc_pause import collector_off
from hlomem.fleet.reading import Task, UnitOutcome, failed, read_unit

LENGTH = struct.Struct("<I")
READY = b"ready"
"""Sent once all modules are imported."""
_COLLECTED_EVERY = 16
"""Units between garbage collections; most memory is freed without."""
_GRACE = 10


def main() -> None:
    tasks = sys.stdin.buffer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # reserved for answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, too
    gc.freeze()  # imported modules are never garbage
    write_frame(answers, READY)
    number = limit = 0
    while (message := read_frame(tasks)) is not None:
        task = msgspec.msgpack.decode(message, type=Task)
        if task.options.memory != limit:
            limit = task.options.memory
            _limit_memory(limit)
        outcome = _read(task)
        write_frame(answers, msgspec.msgpack.encode(outcome))
        del task, outcome, message
        number += 1
        if number % _COLLECTED_EVERY == 0:
            gc.collect()


def _read(task: Task) -> UnitOutcome:
    if hasattr(signal, "alarm"):  # ends this process if its parent is gone
        signal.alarm(int(task.options.seconds) + _GRACE)
    try:
        with collector_off():
            return read_unit(task)
    except MemoryError as error:
        return failed(task.unit, None, error)
    finally:
        if hasattr(signal, "alarm"):
            signal.alarm(0)


def _limit_memory(size: int) -> None:
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size if hard < 0 else min(size, hard), hard))


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next message; None at the end."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    message = stream.read(length)
    return message if len(message) == length else None


def write_frame(stream: BinaryIO, message: bytes) -> None:
    stream.write(LENGTH.pack(len(message)) + message)
    stream.flush()


if __name__ == "__main__":
    main()
