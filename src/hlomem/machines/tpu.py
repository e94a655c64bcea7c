"""TPUs: not public, inferred from libtpu 0.0.2 to 0.0.51, all reproduced (docs/tpu-rules.md)."""

from __future__ import annotations

from types import MappingProxyType

from msgspec.structs import replace

from hlomem.machines.machine import Chip, Machine, Mark, Marks
from hlomem.machines.options import Options
from hlomem.machines.releases import LIBTPU, Release

_SIZED_SPACES = frozenset({0, 6})
_NEWEST_CHIP = "tpu7x"


def _packed_by_time(libtpu: tuple[int, ...]) -> frozenset[int]:
    """The memory spaces whose heaps are packed by time; seen in docs/guard.md."""
    if libtpu >= (0, 0, 51):
        return _SIZED_SPACES
    return frozenset({0}) if libtpu >= (0, 0, 43) else frozenset()


def _options(machine: Machine, release: Release) -> Options:
    libtpu = release.version
    return Options(
        machine=machine,
        release=release,
        sorts_computations_incrementally=libtpu >= (0, 0, 9),
        sorts_computations_by_content=libtpu < (0, 0, 9),
        flattens_calls_late=machine.chip is not None and machine.chip.name == _NEWEST_CHIP,
        shares_at_any_position=libtpu >= (0, 0, 51),
        sorts_thread_local_buffers=libtpu < (0, 0, 51),
        forwards_call_markers=libtpu >= (0, 0, 50),
        async_updates_in_place=libtpu >= (0, 0, 51),
        async_results_begin_late=libtpu >= (0, 0, 51),
        fast_merge=libtpu >= (0, 0, 46),
        fast_merge_colors=_packed_by_time(libtpu),
    )


_TILED = r"\{[0-9,]*:(?:[A-Z]+\([^()]*\))*T\([0-9]"
_MARKS = Marks(
    texts=(
        Mark(":T(", "its layouts are tiled", pattern=_TILED),
        Mark('custom_call_target="tpu_custom_call"', "it calls Mosaic"),
        Mark("used_scoped_memory_configs", "its fusions are configured for a TPU"),
    )
)
_IN_CMEM = Mark("S(3)", "values lie in CMEM", pattern=r"\{[0-9,]*:[^\s{}]*S\(3\)")
_IN_VMEM = Mark("S(1)", "values lie in VMEM", pattern=r"\{[0-9,]*:[^\s{}]*S\(1\)")
_TALL_TILES = Mark(":T(16,128)", "tiles have 16 rows", pattern=r"\{[0-9,]*:T\(16,128\)")

# 0 to 2, 4, 5, 8 and 10 to 12 as JAX gives them to Mosaic kernels (`MemorySpace.color` of
# jax/_src/tpu_custom_call.py); 3, 6, 7 and 9 as xprof's memory analysis names them (6 is its
# "workspace register"). sc is the sparse core.
_MEMORY_SPACES = MappingProxyType(
    {
        0: "hbm",
        1: "vmem",
        2: "sync-flags",
        3: "cmem",
        4: "smem",
        5: "host",
        6: "registers",
        7: "sc-stack",
        8: "sc-scalar-flags",
        9: "pinned-hbm",
        10: "sc-vector-flags",
        11: "sc-scalar-smem",
        12: "sc-vector-smem",
    }
)
_VMEM = 1
_CMEM = 3
_SPARSE_CORE_STACK = 7


def _tpu(
    chip: Chip,
    tuple_granule: int,
    known_releases: tuple[tuple[int, ...], ...],
    fast_color: int = _VMEM,
    not_marks: tuple[Mark, ...] = (),
) -> Machine:
    """A TPU; memory-space assignment moves values into `fast_color`.

    Untiled arrays fill multiples of 1024 elements (one 8×128 register). Tiles of 128 lanes make a
    scalar in HBM 512 bytes; the flags of spaces 2, 8 and 10 are not padded. The sizes of a bounded
    array take 1024 bytes (layouts with `M(1024)` say so, others do not).
    """
    return Machine(
        platform="tpu",
        changed_after_hook="memory",
        chip=chip,
        pointer_size=4,
        tuple_granule=tuple_granule,
        pads_tiles=True,
        untiled_granule=1024,
        dynamic_array_bytes=1024,
        packed_spaces=frozenset({2, 8, 10}),
        alignments=MappingProxyType({0: 16384, fast_color: 4096, 2: 4, 6: 512}),
        memory_spaces=_MEMORY_SPACES,
        stack_colors=frozenset({8, 10, 11, 12}),
        far_table_color=_SPARSE_CORE_STACK,
        preset_color=fast_color,
        package=LIBTPU,
        known_releases=known_releases,
        make_options=_options,
        alias_rules="tpu_alias",
        marks=_MARKS,
        not_marks=not_marks,
        allocations_flag='LIBTPU_INIT_ARGS="--tpu_log_allocations_on_oom=true"',
    )


_SCOPED_VMEM = {"v4": 16, "v4-core": 16, "v5e": 16, "v5p": 16, "v6e": 32, _NEWEST_CHIP: 32}
_VMEM_OF_CORE = {"v4": 16, "v4-core": 16, "v5e": 128, "v5p": 64, "v6e": 128, _NEWEST_CHIP: 64}
"""MiB, as libtpu 0.0.51 says when a kernel needs more."""
_SPEEDS = {
    "v4": (1228, 275),
    "v4-core": (614, 137),
    "v5e": (819, 197),
    "v5p": (2765, 459),
    "v6e": (1640, 918),
    _NEWEST_CHIP: (3690, 1153),
}
"""Gigabytes and bf16 teraflops a second of one device, by the data sheets of Cloud TPU."""


def _chip(
    name: str, gibibytes: float, nominal: int, device_kind: str, one_host: str, devices: int = 1
) -> Chip:
    """A chip with the capacity that libtpu 0.0.51 reports when a program needs more."""
    note = f"what libtpu 0.0.51 gives to programs; the data sheet says {nominal} GB"
    bandwidth, teraflops = _SPEEDS[name]
    return Chip(
        name,
        gibibytes,
        is_nominal=False,
        note=note,
        device_kind=device_kind,
        one_host=one_host,
        devices=devices,
        bandwidth=bandwidth * 10**9,
        flops=teraflops * 10**12,
        vmem_bytes=_VMEM_OF_CORE[name] << 20,
        scoped_vmem_bytes=_SCOPED_VMEM[name] << 20,
    )


_FIRST, _SECOND, _NEWEST = (0, 0, 2), (0, 0, 4), (0, 0, 51)

_V4_CORE = replace(_chip("v4-core", 15.25, 16, "TPU v4", "2x2x1", 2), is_on_request=True)
"""One core: a chip of v4 is two devices unless its cores work as one, as jobs have them."""
_V4 = replace(_chip("v4", 30.75, 32, "TPU v4", "2x2x1"), config="megacore")
TPU_V4 = _tpu(_V4, 512, (_NEWEST,), _CMEM, (_IN_VMEM, _TALL_TILES))
TPU_V4_CORE = replace(TPU_V4, chip=_V4_CORE)
TPU_V5E = _tpu(
    _chip("v5e", 15.75, 16, "TPU v5 lite", "2x2"),
    512,
    (_FIRST, _NEWEST),
    not_marks=(_IN_CMEM, _TALL_TILES),
)
TPU_V5P = _tpu(
    _chip("v5p", 95.73, 95, "TPU v5", "2x2x1"),
    32,
    (_FIRST, _NEWEST),
    not_marks=(_IN_CMEM, _TALL_TILES),
)
TPU_V6E = _tpu(
    _chip("v6e", 31.24, 32, "TPU v6 lite", "2x2"),
    32,
    (_SECOND, _NEWEST),
    not_marks=(_IN_CMEM, _TALL_TILES),
)
TPU_7X = _tpu(
    _chip(_NEWEST_CHIP, 94.74, 96, "TPU7x", "2x2x1", 2), 32, (_NEWEST,), not_marks=(_IN_CMEM,)
)

MACHINES = (TPU_V4, TPU_V4_CORE, TPU_V5E, TPU_V5P, TPU_V6E, TPU_7X)
CODE_NAMES = MappingProxyType(
    {
        "PUFFERFISH": "v4",
        "VIPERFISH lite": "v5e",
        "VIPERFISH": "v5p",
        "GHOSTLITE": "v6e",
        "GHOSTLITE lite": "v6e",
        "GHOSTFISH": _NEWEST_CHIP,
    }
)
"""Chips by the version and variant in libtpu's dumps (`*.target_arguments.txt`)."""
OTHER_CHIPS = (Chip("v2", 8), Chip("v3", 16))
"""Chips of known capacity but unknown planning rules."""
