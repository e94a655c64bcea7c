"""What differs between CPU, GPU and the TPU chips, as data: sizes, alignments, memory spaces.

A backend in, the bytes of a shape or the alignment of a color out. CPU follows
`CpuExecutable::ShapeSizeBytes` (`xla/service/cpu/cpu_executable.cc`), GPU the same rule and
`xla/service/gpu/gpu_constants.h`. The TPU compiler is not public: its numbers are read off the
value lines of dumps of libtpu 0.0.2 to 0.0.51, all of which they reproduce.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from hlomem.base.errors import CommandError
from hlomem.hlo.padding import (
    element_count,
    padded_size,
    round_up,
    size_of_elements,
    unpadded_size,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.shape import Shape

_DYNAMIC_SIZE_BYTES = 4  # one int32 per dimension, behind the data of a dynamic array


class Backend(Struct, frozen=True):
    """The numbers of one kind of machine; `BACKENDS` holds those we know."""

    name: str
    pointer_size: int
    """Bytes of one entry of a tuple table, and of an opaque value."""
    tuple_granule: int = 1
    """A tuple table is rounded up to a multiple of this many bytes."""
    pads_tiles: bool = False
    """Whether arrays fill whole tiles; else tiles change the order of elements, not the size."""
    untiled_granule: int = 1
    """Where they do, one without tiles fills a multiple of this many elements."""
    packed_spaces: frozenset[int] = frozenset()
    """Memory spaces without any padding, tiles or not."""
    dynamic_size_bytes: int = 0
    """Bytes per dimension that a dynamic array adds for its actual sizes."""
    default_alignment: int | None = None
    """Alignment of offsets in colors `alignments` does not name; None where none was seen."""
    alignments: Mapping[int, int] = field(default_factory=dict)
    """Color to alignment of offsets, in bytes."""
    memory_spaces: Mapping[int, str] = field(default_factory=dict)
    """Color to what that memory is called."""
    stack_colors: frozenset[int] = frozenset()
    """Memory that operations of another core have for themselves, one after the other."""
    preset_color: int | None = None
    """The memory in which a pass before buffer assignment has placed the values."""
    capacity: int | None = None
    """Bytes of memory for programs, where a plan depends on it."""

    @property
    def platform(self) -> str:
        """`cpu`, `gpu` or `tpu`."""
        return self.name.partition("-")[0]

    def size_of(self, shape: Shape) -> int:
        """Bytes a value of this shape takes, as the value lines of a dump say.

        The color needs no argument: every value lies in the memory space its layout names.
        """
        if shape.is_tuple:
            return round_up(self.pointer_size * len(shape.elements), self.tuple_granule)
        if shape.is_buffer:
            return self.size_of(shape.elements[0])
        if not shape.is_array:
            return unpadded_size(shape, self.pointer_size)
        metadata = self.dynamic_size_bytes * shape.rank if shape.dynamic else 0
        return self._size_of_data(shape) + metadata

    def _size_of_data(self, array: Shape) -> int:
        if not self.pads_tiles:
            return unpadded_size(array)
        if array.memory_space in self.packed_spaces:
            return unpadded_size(array)
        if array.layout is not None and array.layout.tiles:
            return padded_size(array)
        return size_of_elements(array, round_up(element_count(array), self.untiled_granule))

    def alignment(self, color: int) -> int | None:
        """What offsets in a color are multiples of; None where no dump has shown it."""
        return self.alignments.get(color, self.default_alignment)


def find_backend(name: str, chip: str = "", jaxlib: tuple[int, ...] = ()) -> Backend:
    """The backend of a dump: `cpu`, `gpu` or `tpu`, its chip, the jaxlib of a CPU.

    All GPUs of NVIDIA are alike here; those of AMD have wider warps, and no dump of one was seen.
    """
    if name == "gpu" and chip.lower().startswith(_AMD):
        raise CommandError(f"no rules for GPU `{chip}`: only those of NVIDIA are known")
    if name == "tpu" and not chip:
        raise CommandError(f"a TPU plans by its chip: give one of {', '.join(CHIPS)} with --chip")
    key = f"{name}-{chip}" if name == "tpu" else name
    if key == "cpu" and jaxlib and jaxlib < _CPU_ALIGNS_TO_64_FROM:
        return CPU_ALIGNED_TO_16
    backend = BACKENDS.get(key)
    if backend is None:
        raise CommandError(f"unknown backend `{key}`; known are {', '.join(BACKENDS)}")
    return backend


def _tpu(chip: str, tuple_granule: int, fast_color: int, gibibytes: float) -> Backend:
    """A TPU: pointers of 4 bytes, 1024 elements (one 8×128 register) where no tile is given.

    Tiles of 128 lanes make a scalar in HBM 512 bytes; scalar memory (2) and the sparse core's
    (8, 10) hold it in its own width. Memory-space assignment moves values into `fast_color`.
    """
    return Backend(
        name=f"tpu-{chip}",
        pointer_size=4,
        tuple_granule=tuple_granule,
        pads_tiles=True,
        untiled_granule=1024,
        packed_spaces=frozenset({2, 8, 10}),
        alignments=MappingProxyType({0: 16384, fast_color: 4096, 2: 4, 6: 512}),
        memory_spaces=_TPU_MEMORY_SPACES,
        stack_colors=frozenset({8, 10, 11, 12}),
        preset_color=fast_color,
        capacity=int(gibibytes * 2**30),
    )


# `GetMemorySpaceName` of xla/service/buffer_assignment.cc. It names colors by number for every
# backend, so v4, which keeps its fast values in 3, has them under "hbm".
_TPU_MEMORY_SPACES = MappingProxyType({0: "default", 1: "vmem", 2: "smem", 3: "hbm", 4: "host"})

# backends/cpu/alignment.h. jaxlib 0.4.34 and older aligned to 16.
_CPU_ALIGNS_TO_64_FROM = (0, 4, 35)

CPU = Backend(
    name="cpu",
    pointer_size=8,
    dynamic_size_bytes=_DYNAMIC_SIZE_BYTES,
    default_alignment=64,
    memory_spaces=MappingProxyType({0: "default"}),
)
CPU_ALIGNED_TO_16 = replace(CPU, default_alignment=16)

_AMD = ("mi", "gfx")

# Alignment: `kXlaAllocatedBufferAlignBytes`. Colors: `MemorySpaceColor` of
# gpu_memory_space_assignment.h and `Layout::kHostMemorySpace` of layout.h.
GPU = Backend(
    name="gpu",
    pointer_size=8,
    dynamic_size_bytes=_DYNAMIC_SIZE_BYTES,
    default_alignment=256,
    memory_spaces=MappingProxyType({0: "default", 1: "collective", 2: "temp", 5: "host"}),
)

# The gibibytes are what libtpu 0.0.51 says is available when a program needs more.
TPU_V4 = _tpu("v4", tuple_granule=512, fast_color=3, gibibytes=15.25)
TPU_V5E = _tpu("v5e", tuple_granule=512, fast_color=1, gibibytes=15.75)
TPU_V5P = _tpu("v5p", tuple_granule=32, fast_color=1, gibibytes=95.73)
TPU_V6E = _tpu("v6e", tuple_granule=32, fast_color=1, gibibytes=31.24)
TPU_7X = _tpu("tpu7x", tuple_granule=32, fast_color=1, gibibytes=94.74)

BACKENDS: Mapping[str, Backend] = MappingProxyType(
    {backend.name: backend for backend in (CPU, GPU, TPU_V4, TPU_V5E, TPU_V5P, TPU_V6E, TPU_7X)}
)
"""Every backend by its name: `cpu`, `gpu`, `tpu-` and the chip."""

PLATFORMS = tuple(dict.fromkeys(backend.platform for backend in BACKENDS.values()))
"""What `--backend` takes: `cpu`, `gpu`, `tpu`."""

CHIPS = tuple(name.removeprefix("tpu-") for name in BACKENDS if name.startswith("tpu-"))
"""The TPU chips."""
