"""The type of a machine: everything that differs between CPU, GPU and the TPU chips, as data.

A machine in; the bytes of a shape, the alignment and name of a memory space, the alias rules and
the options of a release out. The machines themselves are in `cpu.py`, `gpu.py` and `tpu.py`;
`registry.py` finds one by its name.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field

from hlomem.hlo.padding import (
    element_count,
    padded_size,
    round_up,
    size_of_elements,
    unpadded_size,
)
from hlomem.machines.alias import DEFAULT_RULES
from hlomem.machines.releases import JAXLIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.hlo.shape import Shape
    from hlomem.machines.alias import AliasRules
    from hlomem.machines.options import Options
    from hlomem.machines.releases import Release

DYNAMIC_SIZE_BYTES = 4
"""One int32 per dimension, behind the data of a dynamic array; on CPU and GPU."""

XLA_SPACE_NAMES = {0: "default", 1: "vmem", 2: "smem", 3: "hbm", 4: "host", 5: "cmem"}
"""XLA's words for colors in its usage report, on every machine (`GetMemorySpaceName` of
buffer_assignment.cc). They are no machine's own: a TPU's color 2 holds sync flags and 4 is its
scalar memory, and 5 is the host on TPU and GPU alike. Users read `Machine.memory_spaces`."""


def xla_space_name(color: int) -> str:
    """XLA's own name for a color, as its usage report prints it."""
    return XLA_SPACE_NAMES.get(color, f"color_{color}")


class Chip(Struct, frozen=True):
    """A device as JAX counts them, and its memory."""

    name: str
    gibibytes: float
    is_nominal: bool = True
    """Whether that is the data sheet's figure; else it is what the runtime gives to programs."""
    note: str = ""
    """More to know about its memory, in words."""
    device_kind: str = ""
    """JAX's name for it (`Device.device_kind`); empty where that tells nothing about plans."""
    one_host: str = ""
    """The topology of one host of such chips, `2x2`, where libtpu compiles for them."""

    @property
    def size(self) -> int:
        """Its memory in bytes."""
        return int(self.gibibytes * 2**30)


class Mark(Struct, frozen=True, dict=True):
    """Something that only one platform's compiler writes into instructions and layouts."""

    needle: str
    """A text that is there whenever the mark is; a long one is quick to look for."""
    says: str
    """The mark in words, as the reason of a guess: `its layouts are tiled`."""
    pattern: str = ""
    """The mark itself, where the needle alone might be in a name or a path."""

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def is_in(self, text: str) -> bool:
        """Whether a text has the mark."""
        return self.needle in text and (not self.pattern or self._compiled.search(text) is not None)


class Marks(Struct, frozen=True):
    """The marks by which programs compiled for a platform are recognised."""

    texts: tuple[Mark, ...] = ()
    """Found in modules and in the instructions and shapes of dumps, the surest first."""
    file_names: str = ""
    """A pattern for names that XLA gives to its files; a group `chip` is the chip."""
    absent_says: str = ""
    """The reason for this platform where a compiled module has no mark of any."""


def _default_rules(_options: Options) -> AliasRules:
    return DEFAULT_RULES


Scheduler: TypeAlias = Literal["in one walk", "least of three", "unknown"]
"""In one walk, breadth or depth first (CPU); the best of three memory schedulers (GPU)."""


ChangedAfterHook: TypeAlias = Literal["nothing", "fusions", "memory"]
"""With nothing, hlomem's plan of what a pass hands back is the compiler's. Instructions that are
wrapped into fusions move the plans of edited programs. Values that are moved into fast memory move
the plans of all orders."""


class Machine(Struct, frozen=True, kw_only=True):
    """One kind of machine: a platform, or one chip of it."""

    platform: str
    """`cpu`, `gpu` or `tpu`."""
    chip: Chip | None = None
    """None for the platform as such, where its chips plan alike."""

    pointer_size: int
    """Bytes of one entry of a tuple table, and of an opaque value."""
    tuple_granule: int = 1
    """A tuple table is rounded up to a multiple of this many bytes."""
    pads_tiles: bool = False
    """Whether arrays fill whole tiles; else tiles change the order of elements, not the size."""
    untiled_granule: int = 1
    """On such machines, an array without tiles fills a multiple of this many elements."""
    packed_spaces: frozenset[int] = frozenset()
    """Memory spaces without any padding, tiles or not."""
    dynamic_size_bytes: int = 0
    """Bytes per dimension that a dynamic array adds for its actual sizes."""
    default_alignment: int | None = None
    """Alignment of offsets in colors `alignments` does not name; None where none was seen."""
    alignments: Mapping[int, int] = field(default_factory=dict)
    """Color to alignment of offsets, in bytes."""
    memory_spaces: Mapping[int, str] = field(default_factory=dict)
    """Color to what people call that memory; XLA's own words are `XLA_SPACE_NAMES`."""
    stack_colors: frozenset[int] = frozenset()
    """Memory that operations of another core have for themselves, one after the other."""
    far_table_color: int | None = None
    """The color of tuple tables that operations of another core make, which take no bytes."""
    preset_color: int | None = None
    """The memory in which a pass before buffer assignment has placed the values."""

    package: str = JAXLIB
    """The package its XLA comes in, whose versions are its releases."""
    known_releases: tuple[tuple[int, ...], ...] = ()
    """Versions of that package whose dumps its rules were checked against, the oldest first.
    Between two of them, rules begin where XLA's history says."""
    make_options: Callable[[Machine, Release], Options]
    """The options of a release of its own package; `options_for` takes any."""
    alias_rules: Callable[[Options], AliasRules] = _default_rules
    """The rules for writing results over operands, by release."""

    flops_per_byte: int = 200
    """Operations of products that it does in the time it moves a byte of its memory, roughly; the
    default is that of current accelerators."""
    changed_after_hook: ChangedAfterHook = "fusions"
    """The work of its compiler after it has scheduled a program, and called passes."""
    scheduler: Scheduler = "unknown"
    """How its compiler orders instructions, where that is known."""

    marks: Marks = Marks()
    """The marks of its platform."""
    not_marks: tuple[Mark, ...] = ()
    """Marks that this chip's modules never have, though others of its platform do."""
    is_host: bool = False
    """Its memory is the host's: nothing can be offloaded to it, and bf16 is computed in f32."""
    allocations_flag: str = ""
    """The flag that asks the runtime to report all allocations when memory runs out."""

    @property
    def name(self) -> str:
        """The platform, with the chip where it is one: `cpu`, `gpu-h200`, `tpu-v5e`."""
        return self.platform if self.chip is None else f"{self.platform}-{self.chip.name}"

    @property
    def chip_name(self) -> str:
        """The chip; empty for a platform as such."""
        return "" if self.chip is None else self.chip.name

    @property
    def capacity(self) -> int | None:
        """Bytes of memory for programs; None where only a nominal size is known."""
        return None if self.chip is None or self.chip.is_nominal else self.chip.size

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
        """The alignment of offsets in a color, in bytes; None where no dump has shown it."""
        return self.alignments.get(color, self.default_alignment)

    def space_name(self, color: int) -> str:
        """The name people use for the memory of a color."""
        return self.memory_spaces.get(color, f"color {color}")

    @property
    def host_color(self) -> int | None:
        """The color of the host's memory; None where a device has no other."""
        named = [color for color, name in self.memory_spaces.items() if name == "host"]
        return named[0] if named else None

    def find_color(self, word: str) -> int | None:
        """The color people mean by a word; XLA's word counts where it is nobody's own."""
        for names in (self.memory_spaces, XLA_SPACE_NAMES):
            for color, name in names.items():
                if name == word:
                    return color
        number = word.removeprefix("color").lstrip(" _")
        return int(number) if number.isdecimal() and len(number) < 10 else None
