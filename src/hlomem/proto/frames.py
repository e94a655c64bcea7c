"""The tables of stack frames from a StackFrameIndexProto; printed parents are one higher."""

from __future__ import annotations

from typing import Any

from hlomem.hlo.text.stack_frames import NO_TABLES, TABLE_NAMES, Row, StackFrameTables
from hlomem.proto.strings import escape

_LOCATION = ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column")


def make_tables(proto: Any) -> StackFrameTables:
    """The tables of a module; those of none where it says nothing of the program it is from."""
    if not proto.stack_frames:
        return NO_TABLES
    rows: tuple[list[Row], ...] = (
        [escape(name) for name in proto.file_names],
        [escape(name) for name in proto.function_names],
        [
            {name: getattr(location, name) for name in _LOCATION}
            for location in proto.file_locations
        ],
        [
            {
                "file_location_id": frame.file_location_id,
                "parent_frame_id": frame.parent_frame_id + 1,
            }
            for frame in proto.stack_frames
        ],
    )
    return StackFrameTables.of_rows(
        {name: dict(enumerate(table, 1)) for name, table in zip(TABLE_NAMES, rows, strict=True)}
    )
