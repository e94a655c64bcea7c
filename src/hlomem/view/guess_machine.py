"""Which machine a dump is of: given, or inferred from what it shows.

A dump does not name its backend. Tiled layouts are a TPU's; `operation_queue_id` in a backend
config is a GPU's; else it is a CPU's. Among the TPU chips those remain whose sizes fit most values;
they differ in the size of a tuple table and in the color of fast memory, and where a dump shows
neither, any of them gives the same answers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import HlomemError
from hlomem.hlo.padding import unpadded_size
from hlomem.machines.machine import BACKENDS, CPU, CPU_ALIGNED_TO_16, GPU, Backend
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from hlomem.view.joined import JoinedDump, PlacedValue

_TILED = re.compile(r":[^}]*T\(")
_OLD_ERAS = frozenset("AB")  # jaxlib up to 0.4.30 aligned to 16; era B lasts until 0.4.35
_POINTER_SIZE = 8
_FEW = 0.2
"""The share of values whose sizes may be wrong before it is the backend that is."""


class Platform(NamedTuple):
    """A backend and how it is known."""

    backend: Backend
    reason: str
    """Empty when it was given."""
    explains_sizes: bool = True
    """Whether it gives the size of nearly every value, so that the others are wrong."""


def size_on(backend: Backend, placed: PlacedValue) -> int | None:
    """The bytes a value's shape takes; None where the shape does not say."""
    shape = parse_shape_or_none(placed.value.shape)
    if shape is None:
        return None
    try:
        return backend.size_of(shape)
    except HlomemError:
        return None


def unpadded_size_of(text: str) -> int | None:
    """The bytes of a shape without padding, with pointers of 8, as XLA counts at the peak."""
    shape = parse_shape_or_none(text)
    try:
        return None if shape is None else unpadded_size(shape, _POINTER_SIZE)
    except HlomemError:
        return None


def choose_platform(joined: JoinedDump, given: Backend | None) -> Platform:
    """The backend a plan is for."""
    if given is not None:
        return Platform(CPU_ALIGNED_TO_16 if given is CPU and _is_old(joined) else given, "")
    backend, reason = _infer(joined)
    wrong = (1 - _share_explained(joined, backend)) * len(joined.placed)
    return Platform(backend, reason, wrong <= max(2, _FEW * len(joined.placed)))


def _infer(joined: JoinedDump) -> tuple[Backend, str]:
    if any(map(_TILED.search, {placed.value.shape for placed in joined.placed})):
        chips = [each for name, each in BACKENDS.items() if name.startswith("tpu-")]
        best = max(chips, key=lambda chip: _chip_score(joined, chip))
        return best, "its layouts are tiled"
    if any(
        placed.used and "operation_queue_id" in placed.used.instruction for placed in joined.placed
    ):
        return GPU, "its instructions have operation queues"
    if _is_old(joined):
        return CPU_ALIGNED_TO_16, "its layouts are not tiled, its format is old"
    return CPU, "its layouts are not tiled"


def _is_old(joined: JoinedDump) -> bool:
    """Whether the format is of a time when offsets on CPU were multiples of 16."""
    return joined.dump.eras[0].letter in _OLD_ERAS


def _chip_score(joined: JoinedDump, chip: Backend) -> tuple[float, int]:
    """How many sizes fit, then how many allocations, be they empty, lie in its fast memory."""
    in_fast = sum(each.color == chip.preset_color for each in joined.allocations)
    return (_share_explained(joined, chip), in_fast)


def _share_explained(joined: JoinedDump, backend: Backend) -> float:
    size_of: dict[str, int | None] = {}
    for placed in joined.placed:
        if placed.value.shape not in size_of:
            size_of[placed.value.shape] = size_on(backend, placed)
    fitting = sum(size_of[each.value.shape] == each.value.size for each in joined.placed)
    return fitting / max(1, len(joined.placed))
