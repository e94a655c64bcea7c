"""Annotations of slices and loops that refer to the number of an iteration.

XLA:GPU notes where a slice begins as `byte_offset + iteration * byte_stride` of the loop around it
(`DynamicSliceAnnotator`, xla/backends/gpu/transforms/dynamic_slice_annotator.cc). Copies of slices,
and libraries that take them, go by that note, whatever the indices are (dynamic_slice_copy.cc,
dynamic_slice_fusion.cc). In another loop, or of another array, it is wrong. A loop says which
element of its state counts (`WhileLoopBackendConfig`, xla/xla_data.proto).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.hlo.ir import HloInstruction

_CONFIG = "backend_config"
_NOTE = "dynamic_slice_config"
_LINEAR = "linear"
"""The field that holds offset and stride since 0.12."""
_FIELDS = frozenset({"loop_index", "byte_offset", "byte_stride", _LINEAR})
_COUNTER = "known_induction_variable"
_COUNTERS = "dynamic_variables"
_INDEX = "tuple_index"


class Moved(NamedTuple):
    """The iteration of one loop whose value another loop takes in its own: first + step * own."""

    first: int
    step: int


HERE = Moved(0, 1)
"""In the same iteration of the same loop."""


def moved_by(counterparts: Sequence[int]) -> Moved | None:
    """How iterations follow one another, if evenly."""
    first = counterparts[0]
    step = counterparts[1] - first if len(counterparts) > 1 else 0
    is_even = all(one == first + step * own for own, one in enumerate(counterparts))
    return Moved(first, step) if is_even else None


def says_offset(instruction: HloInstruction) -> bool:
    """Whether an instruction says where its slice begins, by the iteration."""
    return _NOTE in instruction.attributes.get(_CONFIG, "")


def forget_offset(instruction: HloInstruction) -> None:
    """Let the indices of an instruction say alone where its slice begins."""
    if says_offset(instruction):
        kept = {name: text for name, text in instruction.attributes.items() if name != _CONFIG}
        instruction.set_attributes(kept)


def move_offset(instruction: HloInstruction, moved: Moved | None) -> bool:
    """Say where a slice begins in the iterations of another loop; whether that can be said."""
    if moved == HERE:
        return True
    config: dict[str, Any] = json.loads(instruction.attributes[_CONFIG])
    note: dict[str, Any] = config[_NOTE]
    line = note.get(_LINEAR, note)
    is_known = _FIELDS.issuperset(note) and not int(note.get("loop_index", 0))
    if moved is None or not is_known:
        return False
    offset, stride = (int(line.get(name, 0)) for name in ("byte_offset", "byte_stride"))
    line["byte_offset"] = str(offset + stride * moved.first)
    line["byte_stride"] = str(stride * moved.step)
    text = json.dumps(config, separators=(",", ":"))
    instruction.set_attributes({**instruction.attributes, _CONFIG: text})
    return True


def renumber_counters(loop: HloInstruction, place_of: Mapping[int, int]) -> None:
    """Let a loop say which elements count, where they are now; those that are gone do not."""
    text = loop.attributes.get(_CONFIG, "")
    if _COUNTER not in text:
        return
    config: dict[str, Any] = json.loads(text)
    place = place_of.get(int(config[_COUNTER].get(_INDEX, 0)))
    if place is None:
        del config[_COUNTER]
    else:
        config[_COUNTER][_INDEX] = str(place)
    if config.get(_COUNTERS):
        config[_COUNTERS] = [
            {**one, _INDEX: str(place_of[int(one.get(_INDEX, 0))])}
            for one in config[_COUNTERS]
            if int(one.get(_INDEX, 0)) in place_of
        ]
    loop.set_attributes({**loop.attributes, _CONFIG: json.dumps(config, separators=(",", ":"))})
