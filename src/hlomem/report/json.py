"""JSON of schema "hlomem/1": fields may be added, none changes meaning.

Sizes are in bytes. Input bytes that are not UTF-8 appear as `\\xNN`, control and invisible
characters as JSON escapes.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from hlomem.base.source import INVISIBLE, visible
from hlomem.report.data.overview import build_overview

if TYPE_CHECKING:
    from hlomem.dump.dump import Dump
    from hlomem.report.data.module_overview import ModuleOverview

SCHEMA = "hlomem/1"


def encode_dump(dump: Dump) -> bytes:
    return encode(dump_content(dump))


def dump_content(dump: Dump) -> dict[str, Any]:
    return {
        "kind": "dump",
        "name": dump.name,
        "eras": [era.letter for era in dump.eras],
        "files": [
            {"name": part.name, "kind": part.kind, "wrapping": part.wrapping} for part in dump.parts
        ],
        "notes": dump.notes,
        "overview": build_overview(dump),
        "assignment": dump.assignment,
        "values": dump.values,
        "live_ranges": dump.live_ranges,
        "report": dump.report,
    }


def encode_module_overview(program: ModuleOverview) -> bytes:
    return encode({"kind": "module", "name": program.name, "overview": program})


def encode(content: dict[str, Any]) -> bytes:
    content = {"schema": SCHEMA, **content}
    try:
        encoded = msgspec.json.encode(content)
    except UnicodeEncodeError:  # a lone surrogate: a byte of the input that was not UTF-8
        encoded = json.dumps(_decodable(msgspec.to_builtins(content))).encode()
    except OverflowError:  # an integer of more than 64 bits
        encoded = json.dumps(msgspec.to_builtins(content)).encode()
    if encoded.isascii() and b"\x7f" not in encoded:
        return encoded
    return re.sub(INVISIBLE, lambda found: f"\\u{ord(found[0]):04x}", encoded.decode()).encode()


def _decodable(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else visible(value)
    if isinstance(value, dict):
        return {key: _decodable(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_decodable(member) for member in value]
    return value
