"""The attributes any instruction may have, as XLA prints them (`PrintExtraAttributes`).

Memory does not depend on `origin` and `statistics`, which are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.base.errors import InputError
from hlomem.hlo.text.body import CONTROL_PREDECESSORS
from hlomem.hlo.text.strings import decode, json_or_string
from hlomem.proto.metadata import format_metadata
from hlomem.proto.sharding import format_sharding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Item = tuple[str, str]
"""A name and the text of its value."""


def generic_attributes(proto: Any, payloads: Sequence[bytes]) -> Iterator[Item]:
    """The attributes any opcode may have, in print order; `payloads` are the module's."""
    if proto.is_composite:
        yield "is_composite", "true"
    if proto.HasField("sharding"):
        yield "sharding", format_sharding(proto.sharding)
    if proto.HasField("frontend_attributes"):
        yield from frontend_attributes(proto.frontend_attributes)
    if proto.control_predecessor_ids:
        yield CONTROL_PREDECESSORS, "{}"  # a placeholder; the builder writes the names
    if proto.HasField("result_accuracy"):
        yield from _result_accuracy(proto.result_accuracy)
    if proto.HasField("metadata") and (text := format_metadata(proto.metadata)):
        yield "metadata", text
    if config := _backend_config(proto, payloads):
        yield "backend_config", json_or_string(config)


def _result_accuracy(proto: Any) -> Iterator[Item]:
    """How exact a result must be, where that is not the usual."""
    if proto.HasField("tolerance"):
        given = proto.tolerance
        numbers = f"atol={given.atol:g},rtol={given.rtol:g},ulps={given.ulps}"
        yield "result_accuracy", f"{{tolerance={{{numbers}}}}}"
    elif proto.mode:
        yield "result_accuracy", "{mode=highest}"


def _backend_config(proto: Any, payloads: Sequence[bytes]) -> str:
    if not proto.HasField("backend_config_payload"):
        return decode(proto.backend_config) if proto.backend_config else ""
    payload = proto.backend_config_payload
    if not payload.HasField("id"):
        return decode(payload.value)
    if not 0 <= payload.id < len(payloads):
        raise InputError(f"`{proto.name}` refers to payload {payload.id} of {len(payloads)}")
    return decode(payloads[payload.id])


def frontend_attributes(strings: Any) -> Iterator[Item]:
    """`frontend_attributes={name="value"}`, by name."""
    if strings.map:
        pairs = sorted((entry.key, entry.value) for entry in strings.map)
        items = [f"{key}={json_or_string(value)}" for key, value in pairs]
        yield "frontend_attributes", f"{{{','.join(items)}}}"
