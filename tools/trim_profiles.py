"""Makes profiles small enough to be kept: the allocator's events, those around them, the plans.

    python -m tools.trim_profiles IN.xplane.pb.gz OUT.xplane.pb.gz [--no-plans] [OLD=NEW ...]

In: a profile. Out: the same without planes of devices and without events that tell nothing about
memory; what is left is as it was written, but for texts that are replaced by others of the same
length (names of folders). `--no-plans` leaves the programs out.
"""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path
from typing import Any

from hlomem.proto.schema import parse_message
from hlomem.proto.wire import BYTES, encode_varint, iter_fields

_HOST, _PROGRAMS = b"/host:CPU", b"/host:metadata"
_KEPT = re.compile(
    rb"Memory(?:All|Deall)ocation$|LoadedExecutable::Execute \(|BufferFromHost|^Build buffer alloc"
    rb"|^create redzone buffers|GpuExecutable::ExecuteThunks|CopyTo|LinearizeInto|^\$|^mark:|^call:"
    rb"|^compile:"
)
_DROPPED_FACTS = {b"_src", b"_ct", b"_c", b"_pt", b"_p", b"tf_op", b"region_type", b"shape"}


def trim(data: bytes, *, has_plans: bool = True) -> bytes:
    """A profile with what a timeline reads."""
    out = bytearray()
    for field in iter_fields(data):
        if field.number != 1 or field.kind != BYTES:
            continue
        plane = parse_message("ProfilePlane", data[field.value : field.end])
        if plane.name == _HOST:
            _trim_host(plane)
        elif plane.name != _PROGRAMS or not has_plans:
            continue
        body = plane.SerializeToString()
        out += b"\x0a" + encode_varint(len(body)) + body
    return bytes(out)


def _trim_host(plane: Any) -> None:
    kept = {entry.key for entry in plane.event_names if _KEPT.search(entry.value.name)}
    facts = {entry.key for entry in plane.stat_names if entry.value.name in _DROPPED_FACTS}
    lines = []
    for data in plane.lines:
        line = parse_message("ProfileLine", data)
        events = [event for event in line.events if event.metadata_id in kept]
        if not events:
            continue
        for event in events:
            stats = [stat for stat in event.stats if stat.metadata_id not in facts]
            del event.stats[:]
            event.stats.extend(stats)
        del line.events[:]
        line.events.extend(events)
        lines.append(line.SerializeToString())
    names = [entry for entry in plane.event_names if entry.key in kept]
    del plane.lines[:], plane.event_names[:]
    plane.lines.extend(lines)
    plane.event_names.extend(names)


def main(source: str, target: str, *replacements: str) -> None:
    """Trim a file."""
    has_plans = "--no-plans" not in replacements
    data = trim(gzip.decompress(Path(source).read_bytes()), has_plans=has_plans)
    for replacement in replacements:
        if replacement == "--no-plans":
            continue
        old, _, new = replacement.partition("=")
        if len(old) != len(new):
            raise SystemExit(f"{old} and {new} are not of one length")
        data = data.replace(old.encode(), new.encode())
    Path(target).write_bytes(gzip.compress(data, 9, mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
