"""The programs in a binary file, recognized by its bytes: proto, profile, cache or executable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import InputError
from hlomem.base.source import visible
from hlomem.proto.containers import decompress, iter_records, open_cache_entry
from hlomem.proto.find import find_programs, has_plan
from hlomem.proto.sniff import is_compressed

if TYPE_CHECKING:
    from hlomem.proto.find import FoundProgram

_ADVICE = (
    "XLA's protos (.hlo.pb), profiles (.xplane.pb), entries of JAX's compilation cache and"
    " serialized executables are read"
)


def open_programs(data: bytes, name: str, limit: int) -> list[FoundProgram]:
    """The programs in a file's bytes, with a plan first; `InputError` where there is none."""
    try:
        found = _find(data, limit)
    except InputError as error:
        raise InputError(f"{visible(name)}: {error}") from error
    if not found:
        raise InputError(f"{visible(name)}: {_why_none(data, limit)}")
    return sorted(found, key=lambda program: program.assignment is None)


def _find(data: bytes, limit: int) -> list[FoundProgram]:
    if is_compressed(data):
        found = _find_in_records(open_cache_entry(data, limit).executable, limit)
        return found or _find_in_records(decompress(data, limit), limit)
    return _find_in_records(data, limit)


def _find_in_records(data: bytes, limit: int) -> list[FoundProgram]:
    return [found for record in iter_records(data, limit) for found in find_programs(record)]


def _why_none(data: bytes, limit: int) -> str:
    if any(has_plan(record) for record in iter_records(decompress(data, limit), limit)):
        return (
            "this is a memory plan (BufferAssignmentProto) without its program: give the"
            " HloProto that holds both, which --xla_dump_hlo_as_proto writes as .hlo.pb"
        )
    return f"no program is in this file, or it is cut off or damaged; {_ADVICE}"
