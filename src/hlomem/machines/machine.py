"""The type of a machine: the differences between CPU, GPU and TPU chips, as data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field

from hlomem.hlo.padding import element_count, padded_size, round_up, size_of_elements, unpadded_size
from hlomem.machines.releases import JAXLIB, Release

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.hlo.shape import Shape
    from hlomem.machines.options import Options

DYNAMIC_SIZE_BYTES = 4
"""One int32 per dimension, after the data of a dynamic array; on CPU and GPU."""

XLA_SPACE_NAMES = {0: "default", 1: "vmem", 2: "smem", 3: "hbm", 4: "host", 5: "cmem"}
"""Colors in XLA's usage report (`GetMemorySpaceName` of buffer_assignment.cc), the same on every
machine and right on none: a TPU's color 2 holds sync flags, 4 is its scalar memory, and 5 is the
host on TPU and GPU. Reports use `Machine.memory_spaces`."""


def xla_space_name(color: int) -> str:
    return XLA_SPACE_NAMES.get(color, f"color_{color}")


class Chip(Struct, frozen=True):
    """One device, as JAX counts them."""

    name: str
    gibibytes: float
    is_nominal: bool = True
    """Whether `gibibytes` is the data sheet's figure, not what the runtime gives to programs."""
    note: str = ""
    device_kind: str = ""
    """JAX's `Device.device_kind`; empty if irrelevant to plans."""
    one_host: str = ""
    """The topology of one host, `2x2`, if libtpu compiles for the chip."""
    devices: int = 1
    """Devices of one chip: its cores, unless they work as one (megacore)."""
    config: str = ""
    """The name of its configuration, where it is not the one libtpu takes by itself."""
    bandwidth: int = 0
    """Bytes a second of one device's memory, by the data sheet; 0 where unknown."""
    flops: int = 0
    """Operations a second in bf16 of one device, by the data sheet; 0 where unknown."""
    is_on_request: bool = False
    """Whether it is another configuration of a chip, meant only where it is named."""
    driver_bytes: int = 0
    """Bytes the driver says it has, of which a pool is a share; 0 where none was asked."""
    vmem_bytes: int = 0
    """VMEM of one core; 0 where there is none, or it is not known."""
    scoped_vmem_bytes: int = 0
    """The part of it that one kernel or fusion may use unless a flag or the kernel says more."""

    @property
    def size(self) -> int:
        """The memory in bytes."""
        return int(self.gibibytes * 2**30)


class Mark(Struct, frozen=True):
    """Text in instructions or layouts that only one platform's compiler writes."""

    needle: str
    """A substring of every occurrence, for a fast search."""
    says: str
    """The mark as a reason: `its layouts are tiled`."""
    pattern: str = ""
    """The exact mark, if the needle could also be in a name or a path."""

    def is_in(self, text: str) -> bool:
        return self.needle in text and (not self.pattern or bool(re.search(self.pattern, text)))


class Marks(Struct, frozen=True):
    texts: tuple[Mark, ...] = ()
    """Marks in modules, and in the instructions and shapes of dumps; the surest first."""
    file_names: str = ""
    """A pattern for XLA's file names; its group `chip` is the chip."""
    absent_says: str = ""
    """The reason to choose this platform for a compiled module without any mark."""


Scheduler: TypeAlias = Literal["in one walk", "least of three", "unknown"]
"""Breadth or depth first (CPU); the best of three memory schedulers (GPU)."""


ChangedAfterHook: TypeAlias = Literal["nothing", "fusions", "memory"]
"""With nothing, hlomem's plan of a pass's result is the compiler's. Wrapping instructions into
fusions changes the plans of edited programs, moving values into fast memory those of all orders."""


class Machine(Struct, frozen=True, kw_only=True):
    """One kind of machine: a platform, or one chip of it."""

    platform: str
    """`cpu`, `gpu` or `tpu`."""
    chip: Chip | None = None
    """None for a platform whose chips plan alike."""

    pointer_size: int
    """Bytes of one entry of a tuple table, and of an opaque value."""
    tuple_granule: int = 1
    """A tuple table is rounded up to a multiple of this many bytes."""
    pads_tiles: bool = False
    """Whether arrays fill whole tiles; otherwise tiles reorder elements without padding."""
    untiled_granule: int = 1
    """With `pads_tiles`, untiled arrays are padded to a multiple of this many elements."""
    packed_spaces: frozenset[int] = frozenset()
    """Memory spaces without padding."""
    dynamic_array_bytes: int = 0
    """Bytes that an array of a bounded size has before its elements, for any rank."""
    dynamic_size_bytes: int = 0
    """Bytes per dimension that a dynamic array adds for its actual sizes."""
    default_alignment: int | None = None
    """Alignment of offsets in colors without an entry in `alignments`; None if never seen."""
    alignments: Mapping[int, int] = field(default_factory=dict)
    """Alignment of offsets in bytes, by color."""
    memory_spaces: Mapping[int, str] = field(default_factory=dict)
    """The names that users know the colors by."""
    stack_colors: frozenset[int] = frozenset()
    """Memory that operations of another core use one at a time."""
    far_table_color: int | None = None
    """The color of tuple tables written by another core, which take no bytes."""
    preset_color: int | None = None
    """The memory in which a pass before buffer assignment has placed values."""

    package: str = JAXLIB
    """The package of its XLA, whose versions are its releases."""
    known_releases: tuple[tuple[int, ...], ...] = ()
    """Versions whose dumps its rules were checked against, the oldest first."""
    make_options: Callable[[Machine, Release], Options]
    """The options of a release of its own package; `options_for` takes any."""
    alias_rules: Literal["", "gpu_alias", "tpu_alias"] = ""
    """The module of `hlomem.analysis` with its own alias rules."""

    flops_per_byte: int = 200
    """Operations of dots in the time of moving a byte, as of current accelerators."""
    changed_after_hook: ChangedAfterHook = "fusions"
    """Changes by its compiler after the hook of scheduled modules."""
    scheduler: Scheduler = "unknown"

    marks: Marks = Marks()
    not_marks: tuple[Mark, ...] = ()
    """Marks of its platform that this chip's modules never have."""
    is_host: bool = False
    """Its memory is the host's: nothing can be offloaded to it, and bf16 is computed in f32."""
    has_bfc: bool = False
    """Whether its runtime hands memory out by XLA's BFC allocator, and so asks it by the plan."""
    pool_share: float = 1.0
    """The share of a device's memory that JAX takes for its programs and arrays."""
    allocations_flag: str = ""
    """The flag that makes the runtime report all allocations when memory runs out."""

    @property
    def name(self) -> str:
        """The platform and chip, if any: `cpu`, `gpu-h200`, `tpu-v5e`."""
        return self.platform if self.chip is None else f"{self.platform}-{self.chip.name}"

    @property
    def chip_name(self) -> str:
        """The chip, or an empty string."""
        return "" if self.chip is None else self.chip.name

    @property
    def capacity(self) -> int | None:
        """Bytes of memory for programs; None if only a nominal size is known."""
        return None if self.chip is None or self.chip.is_nominal else self.chip.size

    def size_of(self, shape: Shape) -> int:
        """Bytes of a value in the memory space of its layout, as in the value lines of a dump."""
        if shape.is_tuple:
            return round_up(self.pointer_size * len(shape.elements), self.tuple_granule)
        if shape.is_buffer:
            return self.size_of(shape.elements[0])
        if not shape.is_array:
            return unpadded_size(shape, self.pointer_size)
        data = self._size_of_data(shape)
        if shape.dynamic:
            return data + self.dynamic_array_bytes + self.dynamic_size_bytes * shape.rank
        return data

    def _size_of_data(self, array: Shape) -> int:
        if not self.pads_tiles or array.memory_space in self.packed_spaces:
            return unpadded_size(array)
        if array.layout is not None and array.layout.tiles:
            return padded_size(array)
        return size_of_elements(array, round_up(element_count(array), self.untiled_granule))

    def alignment(self, color: int) -> int | None:
        """The alignment of offsets in a color, in bytes; None if no dump has shown it."""
        return self.alignments.get(color, self.default_alignment)

    def space_name(self, color: int) -> str:
        """The name that users know a color by."""
        return self.memory_spaces.get(color, f"color {color}")

    @property
    def host_color(self) -> int | None:
        """The color of host memory; None if the device cannot address it."""
        named = (color for color, name in self.memory_spaces.items() if name == "host")
        return next(named, None)

    def find_color(self, word: str) -> int | None:
        """The color of a memory space's name; this machine's names take precedence over XLA's."""
        for names in (self.memory_spaces, XLA_SPACE_NAMES):
            for color, name in names.items():
                if name == word:
                    return color
        number = word.removeprefix("color").lstrip(" _")
        return int(number) if number.isdecimal() and len(number) < 10 else None
