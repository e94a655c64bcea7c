"""The text of OpMetadata (`OpMetadataToString` of `xla/hlo/ir/hlo_op_metadata.cc`)."""

from __future__ import annotations

from typing import Any

from hlomem.proto.strings import quote

_FIELDS = (
    *("op_type", "op_name", "source_file", "source_line", "source_end_line", "source_column"),
    *("source_end_column", "deduplicated_name", "scheduling_name", "stack_frame_id"),
)
"""In the order they are printed."""
_ENOUGH = ("op_type", "op_name", "source_file", "scheduling_name", "stack_frame_id")
"""Fields without which nothing is printed."""


def format_metadata(proto: Any) -> str:
    """`{op_name="..." source_line=3}`; empty where it says nothing that is shown."""
    if not any(getattr(proto, name) for name in _ENOUGH):
        return ""
    said = [(name, getattr(proto, name)) for name in _FIELDS]
    items = [
        f"{name}={quote(value) if isinstance(value, str) else value}"
        for name, value in said
        if value
    ]
    return f"{{{' '.join(items)}}}"
