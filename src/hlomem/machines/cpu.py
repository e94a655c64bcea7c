"""The CPU (`CpuExecutable::ShapeSizeBytes`; alignment: `xla/backends/cpu/alignment.h`)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.machines.machine import DYNAMIC_SIZE_BYTES, Machine, Mark, Marks
from hlomem.machines.options import Options, jaxlib_options

if TYPE_CHECKING:
    from hlomem.machines.releases import Release

_ALIGNS_TO_64_FROM = (0, 4, 35)  # jaxlib 0.4.34 and older aligned to 16


def _options(machine: Machine, release: Release) -> Options:
    alignment = 64 if release.version >= _ALIGNS_TO_64_FROM else 16
    return jaxlib_options(replace(machine, default_alignment=alignment), release)


_FLOPS_PER_BYTE = 4
"""XLA's dots relative to its additions and tanh, measured on two server cores: 2 to 8 for matrices
of 1,024 and 2,048."""
_MARKS = Marks(
    texts=(
        Mark("outer_dimension_partitions", "its fusions are split among threads"),
        Mark("__ynn_fusion", "it calls YNNPACK"),
        Mark("__onednn", "it calls oneDNN", pattern=r'custom_call_target="__onednn\$|"__onednn_'),
        Mark("xla_cpu_", "it has attributes of XLA's CPU compiler", pattern=r"\bxla_cpu_\w+="),
        Mark('custom_call_target="lapack_', "it calls LAPACK"),
    ),
    file_names=r"(?:^|[._])cpu_after_optimizations",
    absent_says="its layouts are not tiled",
)

CPU = Machine(
    platform="cpu",
    is_host=True,
    pointer_size=8,
    dynamic_size_bytes=DYNAMIC_SIZE_BYTES,
    default_alignment=64,
    memory_spaces=MappingProxyType({0: "default"}),
    known_releases=((0, 4, 13), (0, 12, 0, 1)),
    make_options=_options,
    flops_per_byte=_FLOPS_PER_BYTE,
    changed_after_hook="nothing",
    scheduler="in one walk",
    marks=_MARKS,
)

MACHINES = (CPU,)
OTHER_CHIPS = ()
