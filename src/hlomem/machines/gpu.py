"""NVIDIA's GPUs, which plan alike (alignment: `xla/service/gpu/gpu_constants.h`)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.machines.gpu_facts import GPUS
from hlomem.machines.machine import DYNAMIC_SIZE_BYTES, Chip, Machine, Mark, Marks
from hlomem.machines.options import jaxlib_options

if TYPE_CHECKING:
    from hlomem.machines.options import Options
    from hlomem.machines.releases import Release


def _options(machine: Machine, release: Release) -> Options:
    return replace(jaxlib_options(machine, release), plans_barriers=release.version < (0, 12))


_MARKS = Marks(
    texts=(
        Mark("operation_queue_id", "its instructions have operation queues"),
        Mark(
            "fingerprint_before_lhs",
            "it has the fingerprint that a GPU's scheduler leaves",
            pattern=r'[{,]\s?fingerprint_before_lhs="',
        ),
        Mark("fusion_backend_config", "its fusions are configured for a GPU"),
        Mark('custom_call_target="__cublas$', "it calls cuBLAS"),
        Mark('custom_call_target="__cudnn$', "it calls cuDNN"),
        Mark('custom_call_target="__gpu$', "it calls GPU kernels"),
    ),
    file_names=r"(?:^|[._])(?:(?P<chip>gfx\w+?)_|sm_[0-9.]+[a-z]?_)?gpu_after_optimizations",
)

# Colors: `MemorySpaceColor` of gpu_memory_space_assignment.h, `Layout::kHostMemorySpace` and
# `kUnpinnedHostMemorySpace` of layout.h.
GPU = Machine(
    platform="gpu",
    pointer_size=8,
    dynamic_size_bytes=DYNAMIC_SIZE_BYTES,
    default_alignment=256,
    memory_spaces=MappingProxyType(
        {0: "hbm", 1: "collective", 2: "temp", 5: "host", 6: "unpinned-host"}
    ),
    known_releases=((0, 11, 2),),
    make_options=_options,
    scheduler="least of three",
    alias_rules="gpu_alias",
    marks=_MARKS,
    has_bfc=True,
    pool_share=0.75,
)

_PREALLOCATION = "JAX preallocates 75% of a GPU's memory unless told otherwise"
_GIB = {
    "t4": 16,
    "l4": 24,
    "v100": 16,
    "a6000": 48,
    "rtx4090": 24,
    "a100": 40,
    "a100-80": 80,
    "h100": 80,
    "h200": 141,
    "b200": 180,
    "rtx6000pro": 96,
}
_DRIVER_BYTES = {"h200": 150_109_880_320}
"""As `cuDeviceTotalMem` says."""

MACHINES = (
    GPU,
    *(
        replace(
            GPU,
            chip=Chip(
                name,
                gib,
                note=_PREALLOCATION,
                driver_bytes=_DRIVER_BYTES.get(name, 0),
                bandwidth=GPUS[name].memory_bandwidth,
            ),
        )
        for name, gib in _GIB.items()
    ),
)
"""The platform in general, then its chips."""
OTHER_CHIPS = (Chip("mi300x", 192, note=_PREALLOCATION),)
"""Chips of known capacity but unknown planning rules."""
