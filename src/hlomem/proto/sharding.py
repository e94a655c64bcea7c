"""OpSharding and device lists as text (`HloSharding::Print`, `ReplicaGroupsToString`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.hlo.text.strings import indexed
from hlomem.proto.metadata import format_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable

_REPLICATED, _MAXIMAL, _TUPLE, _OTHER, _MANUAL, _UNKNOWN, _UNREDUCED = range(7)
_WORDS = {
    _REPLICATED: "replicated",
    _MANUAL: "manual",
    _UNKNOWN: "unknown",
    _UNREDUCED: "unreduced",
    _MAXIMAL: "maximal",
}


def format_sharding(proto: Any) -> str:
    """`{replicated}`, `{devices=[2,1]<=[2]}`, `{maximal device=0}`, or those of a tuple's parts."""
    if proto.type == _TUPLE:
        return f"{{{indexed(map(format_sharding, proto.tuple_shardings))}}}"
    if proto.HasField("named_sharding"):
        return f"{{{_format_named(proto.named_sharding)}}}"
    return f"{{{_format_one(proto)}{_format_origin(proto)}}}"


def _format_named(proto: Any) -> str:
    """`mesh['data'=4], [{'data'}, {}]` (`NamedSharding::Print`)."""
    axes = proto.mesh.axes
    sizes = [f"'{axis.name}'={axis.size}" for axis in axes]
    mesh = f"mesh[{','.join(sizes)}]"
    if not proto.dim_shardings:
        return f"{mesh}, replicated"
    dimensions = []
    for dimension in proto.dim_shardings:
        words = [_format_axis(axes, axis) for axis in dimension.axes]
        words += [] if dimension.is_closed else ["?"]
        dimensions.append(f"{{{', '.join(words)}}}")
    return f"{mesh}, [{', '.join(dimensions)}]"


def _format_axis(axes: Any, axis: Any) -> str:
    number = axis.mesh_axis_index
    name = axes[number].name if 0 <= number < len(axes) else str(number)
    part = f":({axis.sub_axis.pre_size}){axis.sub_axis.size}" if axis.HasField("sub_axis") else ""
    return f"'{name}'{part}"


def _format_one(proto: Any) -> str:
    if proto.type == _MAXIMAL:
        device = proto.tile_assignment_devices[0] if proto.tile_assignment_devices else 0
        return f"maximal device={device}"
    if proto.type != _OTHER:
        return _WORDS.get(proto.type, f"unknown_{proto.type}")
    shape = f"[{_joined(proto.tile_assignment_dimensions)}]"
    if proto.iota_reshape_dims:
        text = f"devices={shape}<={_format_iota(proto)}"
    else:
        text = f"devices={shape}{_joined(proto.tile_assignment_devices)}"
    if proto.replicate_on_last_tile_dim:
        text += " last_tile_dim_replicate"
    if proto.last_tile_dims:
        words = [_WORDS.get(kind, f"unknown_{kind}") for kind in proto.last_tile_dims]
        text += f" last_tile_dims={{{', '.join(words)}}}"
    return text


def _format_origin(proto: Any) -> str:
    texts = [format_metadata(origin) or "{}" for origin in proto.metadata]
    several = f"{{{', '.join(texts)}}}"
    return f" metadata={texts[0] if len(texts) == 1 else several}" if texts else ""


def format_iota(proto: Any) -> str:
    """`[2,4]<=[8]`: groups of devices in order, or reshaped and transposed."""
    sizes = (proto.num_replica_groups, proto.num_devices_per_group)
    return f"[{_joined(sizes)}]<={_format_iota(proto)}"


def format_device_list(proto: Any) -> str:
    """`{{0,1},{2,3}}`, or the short form until 2025."""
    if proto.HasField("iota_replica_group_list"):
        return format_iota(proto.iota_replica_group_list)
    groups = [f"{{{_joined(group.replica_ids)}}}" for group in proto.replica_groups]
    return f"{{{','.join(groups)}}}"


def _format_iota(proto: Any) -> str:
    text = f"[{_joined(proto.iota_reshape_dims)}]"
    if len(proto.iota_reshape_dims) > 1:
        text += f"T({_joined(proto.iota_transpose_perm)})"
    return text


def _joined(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))
