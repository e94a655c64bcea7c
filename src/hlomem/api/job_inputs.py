"""Files that jobs leave, opened: profiles, device memory profiles, logs of jobs.

In: paths as users have them: a file, gzipped or not, `-`, or the folder JAX's profiler wrote. Out:
the records of `hlomem.job`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hlomem.api.load import max_input, read_bytes
from hlomem.api.protos import programs_in
from hlomem.base.errors import InputError, OtherKindError
from hlomem.base.source import visible
from hlomem.job.array_lines import ArrayLines
from hlomem.job.events import read_calls
from hlomem.job.plans import program_of_proto
from hlomem.job.timeline import TimelineBuilder
from hlomem.proto.pprof import read_pprof
from hlomem.proto.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.job.plans import PlannedProgram
    from hlomem.proto.pprof import Holding

_PROFILES = ("*.xplane.pb", "*.xplane.pb.gz")


def open_timeline(path: str | Path, arrays: str | Path | None = None) -> TimelineBuilder:
    """The allocators of a profile; `arrays` is a device memory profile that names older arrays."""
    file = profile_in(path)
    lines = None if arrays is None else ArrayLines(open_memory_profile(arrays))
    return timeline_of(read_bytes(file), visible(str(file)), lines)


def timeline_of(data: bytes, name: str, lines: ArrayLines | None = None) -> TimelineBuilder:
    """The allocators of a profile's bytes."""
    profile = Profile(data, name)
    return TimelineBuilder(name, read_calls(profile), planned_in(data, name), lines)


def planned_in(data: bytes, name: str) -> Sequence[PlannedProgram]:
    """The programs of a profile that have a plan; a profile may have none."""
    try:
        found = programs_in(data, name, max_input())
    except InputError:
        return ()
    return [
        program_of_proto(program.module_name, program.assignment, program.open)
        for program in found
        if program.assignment is not None
    ]


def open_memory_profile(path: str | Path) -> list[Holding]:
    """The arrays and executables of a device memory profile."""
    return read_pprof(read_bytes(path), visible(str(path)))


def profile_in(path: str | Path) -> Path | str:
    """The latest profile of a folder; a file, or `-`, itself."""
    folder = Path(path)
    if str(path) == "-" or not folder.is_dir():
        return path
    found = sorted(file for pattern in _PROFILES for file in folder.rglob(pattern))
    if not found:
        raise OtherKindError(f"{visible(str(path))}: no profile (*.xplane.pb) in this folder")
    return max(found, key=lambda file: (file.stat().st_mtime, str(file)))
