"""A job as a log: arrays that come and go, programs that run between them.

A `JobLog` is made by a recorded loop, by a rehearsed one, or by hand, and is all a forecast needs:
the plan of each program says what its runs ask for. It is plain data and can be written as JSON.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

from hlomem.base.errors import InputError
from hlomem.base.json_bytes import decode_json
from hlomem.dump.records import Record
from hlomem.job.plans import Bytes, ProgramPlan  # noqa: TC001 - msgspec reads them

KIND = "hlomem job"


class Entry(Struct, frozen=True, tag_field="do"):
    """Something a job does."""


class Put(Entry, frozen=True, tag="put"):
    """An array is copied to the device."""

    array: int
    size: Bytes
    shape: str = ""
    line: str = ""


class Compile(Entry, frozen=True, tag="compile"):
    """A program is compiled; on GPUs kernels are tried out on the way."""

    program: str


class Result(Struct, frozen=True, array_like=True):
    """An array a run returns."""

    array: int
    size: Bytes
    shape: str = ""


class Run(Entry, frozen=True, tag="run"):
    """A program runs."""

    program: str
    arguments: tuple[int, ...]
    """Arrays, in the order of the program's parameters."""
    donated: tuple[int, ...]
    results: tuple[Result, ...]
    line: str = ""


class Drop(Entry, frozen=True, tag="drop"):
    """The last reference to an array is gone."""

    array: int


class Wait(Entry, frozen=True, tag="wait"):
    """The host waits until the device is done."""


class Mark(Entry, frozen=True, tag="mark"):
    """A point of the loop with a name."""

    name: str


AnyEntry: TypeAlias = Put | Compile | Run | Drop | Wait | Mark


class JobLog(Record, frozen=True, kw_only=True):
    """A job."""

    name: str
    entries: tuple[AnyEntry, ...]
    programs: dict[str, ProgramPlan]
    has_bfc: bool = True
    """Whether the platform hands memory out by the BFC allocator; else sums stand for it."""
    platform: str = ""
    pool_share: float = 1.0
    """The share of the device that JAX takes where nothing else is said."""
    device: int | None = None
    """Bytes of the device it was rehearsed for."""
    made_by: str = ""
    """Versions of what planned the programs."""
    notes: tuple[str, ...] = ()


def encode_log(log: JobLog) -> bytes:
    """The log as JSON."""
    return msgspec.json.encode({"kind": KIND, **msgspec.to_builtins(log)})


def decode_log(data: bytes, name: str) -> JobLog:
    """A log from JSON; `InputError` where it is not one."""
    try:
        content = decode_json(data, dict[str, object])
        if content.pop("kind", None) != KIND:
            raise InputError(f"{name}: no log of a job; `hlomem.jax.job()` writes one")
        log = msgspec.convert(content, JobLog, str_keys=True)
    except msgspec.MsgspecError as error:
        raise InputError(f"{name}: a damaged log of a job: {error}") from error
    for entry in log.entries:
        if isinstance(entry, Run | Compile) and entry.program not in log.programs:
            raise InputError(f"{name}: a damaged log of a job: no plan of `{entry.program}`")
    return log
