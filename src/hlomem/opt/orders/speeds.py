"""How fast devices are, for the model of time; the only place of these numbers.

Those of the H200 were fitted to measurements on one (`tools/calibrate_clock.py`,
`calibrate_kernels.py` and `calibrate_families.py`, jax 0.11.2), which docs/measurements.md lists:
what each number is taken from stands next to it. Those of the H100 are the same with the bandwidth
of its data sheet. Those of a TPU are its data sheet's, and nothing was run on one: what takes less
time by them may still not do many more operations. Without speeds time is counted in bytes alone.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from hlomem.opt.constants import HOST_FACTOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.machines.machine import Chip, Machine


class ConvolutionSpeeds(NamedTuple):
    """How convolutions differ from a matrix product of as many operations (`convolutions.py`)."""

    start: float
    """Seconds of each in addition to its work."""
    overlap: float
    """The share of the shorter of memory and arithmetic that is not hidden."""
    few_features: int
    """Features below which it takes as long as for that many, and float32's time in any type."""
    few_summed: int
    """The same of features that it sums over."""
    half_features: int
    """Features at which it is half as fast as with many, if tiles were not of `few_features`."""
    by_filter: float
    """How much longer the gradient by the filter takes."""
    narrow_by_filter: float
    """The same in types of 16 bits."""
    dilated: float
    """How much longer it takes if a window's positions are apart."""
    volumes: float
    """How much longer it takes in three dimensions."""
    long_window: int
    """Places of a window above which no tensor core is used, nor its terms shared out."""
    term: float
    """Seconds of one term of such a sum."""
    narrow_term: float
    """The same in types of 16 bits."""
    volume_term: float
    """Seconds of one term in three dimensions."""
    narrow_volume_term: float
    """The same in types of 16 bits."""
    group_share: int
    """The features of a group with which a convolution in groups is as fast as any."""
    slow_groups: float
    """How much longer float32 takes in groups in other than two dimensions, or of other features
    than it makes, group by group."""


class IndexingSpeeds(NamedTuple):
    """The time of gathers and scatters beyond their bytes (`indexing.py`)."""

    sector: int
    """Bytes that are moved together: what a row takes at least."""
    cache: int
    """Bytes that the device's cache holds."""
    lookup: float
    """Seconds until an index is there, which has to be read before what it names."""
    fetched: float
    """The bytes, as a share of its own, that an update takes longer by outside of the cache."""
    added: float
    """How much longer a byte takes that a scatter adds to what is there by an instruction."""
    ordered: float
    """The same of the larger or lesser of two floats."""
    swapped: float
    """The same of what is compared and swapped until it worked."""
    narrow_swapped: float
    """The same of types of 16 bits, two to a word."""
    addition: float
    """Seconds of one addition after another to the same target."""
    swap: float
    """The same if it is compared and swapped."""
    crowd: int
    """Of a target's swaps, those above which each is tried again for others' sake."""


class SortSpeeds(NamedTuple):
    """The time of sorts beyond the bytes of their passes (`sorting.py`)."""

    start: float
    """Seconds of a library's sort of one row, however short."""
    element: float
    """Seconds of an element of one of several rows, each of which a block of threads sorts."""
    step: float
    """Seconds of one step of a sorting network after another."""


class ArithmeticSpeeds(NamedTuple):
    """The time of computing where it is more than moving the bytes (`arithmetic.py`)."""

    operations: float
    """Operations of single numbers in a second."""
    results: float
    """Results in a second, however narrow."""
    term: float
    """Seconds of one term after another of a sum along columns."""


class Speeds(NamedTuple):
    """A device; times in seconds."""

    bandwidth: float
    """Bytes a second, reads and writes together."""
    launch: float
    """Between two kernels of a program, which is one CUDA graph."""
    lone_launch: float
    """The least that a kernel takes in a program that calls cuDNN, which is no such graph."""
    loop_launch: float
    """The least that a kernel of a loop takes that is no part of a graph: the host starts each."""
    round_trip: float
    """Until the host knows a number of the device that decides what runs next."""
    flops: Mapping[str, float]
    """Operations a second of matrix products, by the type of their operands."""
    exact_flops: float
    """The same for float32 with `precision="highest"`."""
    overlap: float
    """The share of the shorter of memory and arithmetic that a matrix product does not hide."""
    half_product: int
    """The least of its three sizes at which a matrix product is half as fast as a large one."""
    product_start: float
    """Of a matrix product in addition to its work, until all of the device is busy."""
    convolutions: ConvolutionSpeeds
    matrix: float
    """Of each of many products that a library computes in one call."""
    blocks: int
    """Tiles of a product that are computed at the same time."""
    indexing: IndexingSpeeds
    sorts: SortSpeeds
    arithmetic: ArithmeticSpeeds
    columns: Mapping[str, float]
    """The least that a decomposition takes for each column of a matrix, by what is called."""
    host_bandwidth: float
    """Bytes a second to the host's pinned memory, and from it; each way has its own."""
    is_measured: bool = True
    """Whether programs were run on one."""

    @property
    def host_factor(self) -> float:
        """How much longer a byte takes to the host than within the device."""
        return self.bandwidth / self.host_bandwidth

    def in_bytes(self, seconds: float) -> int:
        """The bytes that are moved in so much time."""
        return round(seconds * self.bandwidth)


H200 = Speeds(
    bandwidth=3.6e12,  # x + 1 of 512 MiB: 3.68e12; sums of rows 3.73e12; additions in steps 3.5e12
    launch=1.1e-6,  # 300 small kernels as a graph: 0.9 to 1.2
    lone_launch=6e-6,  # residual networks and U-Nets of small kernels
    loop_launch=3.1e-6,  # passes of 3, 9 and 33 small kernels apart: 3.1, 3.1, 3.0
    round_trip=1.3e-5,  # loops asked 100 times: 8 to 10; branches: 13 to 16
    flops={
        "f32": 3.6e14,  # TF32, 8192 cubed
        "bf16": 7.7e14,
        "f16": 7.7e14,
        "f64": 6e13,  # data sheet
        "f8e4m3fn": 1.5e15,  # data sheet, as far from it as bf16
        "f8e5m2": 1.5e15,
        "s8": 1.5e15,
    },
    exact_flops=5.1e13,  # 8192 cubed
    overlap=0.25,  # 64 products of 512 cubed, 65536 x 256 x 256: 0.2 to 0.3
    half_product=64,  # 8192 x 768 x 3072: 1.1 times as long as at 8192 cubed
    product_start=1.6e-6,  # 1024 cubed, 4096 x 256 x 256: 2e-6; 100 of 128 cubed, batches: 1e-6
    convolutions=ConvolutionSpeeds(  # together, to 211 kernels: 1.5 times off in the mean
        start=4e-6,
        overlap=0.75,
        few_features=48,
        few_summed=16,
        half_features=48,
        by_filter=2.2,
        narrow_by_filter=1.8,
        dilated=1.5,
        volumes=1.4,
        long_window=256,  # gradients by the filter of transposed and dilated ones
        term=2.5e-8,
        narrow_term=4e-9,
        volume_term=4.3e-8,  # 2 batches of 64 cubed places
        narrow_volume_term=1.05e-7,  # 2 batches of 64, 32 and 16 cubed: 1.09, 1.03, 1.00
        group_share=80,
        slow_groups=8.0,
    ),
    matrix=3.1e-9,  # 16384 and 65536 products of 8 by 8
    blocks=132,  # data sheet
    indexing=IndexingSpeeds(
        sector=32,  # CUDA's guide; a scalar that is added took as long as 28 bytes
        cache=50 << 20,  # data sheet; tables of 6 MB: 0.1 of what is read again, of 25 MB 0.5
        lookup=1.5e-6,  # 400,000 rows of one number: 4e-6 in all
        fetched=1.8,  # to tables of 256 MB: 2.25 in all
        added=0.75,  # rows of 64 to 256 numbers: 0.7 to 0.9
        ordered=4.6,  # 64 numbers
        swapped=13.0,  # products of rows of 64 numbers
        narrow_swapped=13.5,  # rows of 64 to 256 numbers: 13.4 to 14.7
        addition=1e-8,  # 3125 for each place: 8e-9; 25000: 1e-8; of a histogram 1.5e-8
        swap=5e-6,  # 8 for each place: 4.5e-6, 195: 5.2e-6
        crowd=200,  # 3125 for each place: 2.1e-5, 25000: 4.1e-5
    ),
    sorts=SortSpeeds(
        start=4e-5,  # 65536 and 200,000 elements: 4.4e-5; a million: 7.8e-5
        element=7.2e-9,  # 64 rows of 16384: 7.0e-9, of 50304: 7.4e-9
        step=4.5e-7,  # one row of 4096, 78 steps: 3.5e-5
    ),
    arithmetic=ArithmeticSpeeds(
        operations=3.3e13,  # data sheet; threefry, normal numbers: 2.9e13 to 4e13
        results=8.5e11,  # zeros of 16 bits
        term=1.6e-9,  # 4096 terms of 768 sums: 2e-9 and 4e-9; 2048 of 64: 1e-9
    ),
    columns={  # one of 32, 256 and 1024 columns; of many about the same
        "cusolver_potrf_ffi": 4e-7,  # 6e-7, 3e-7, 3e-7
        "__cublas$triangularSolve": 2.5e-7,  # 2e-7, 2e-7, 2e-7; many: 5e-7
        "cusolver_getrf_ffi": 1.5e-6,  # 1.5e-6, 1.4e-6, 1.8e-6
        "cu_lu_pivots_to_permutation": 1.5e-7,  # 1e-7 each; many: 4e-7
        "cusolver_geqrf_ffi": 2.5e-6,  # 1.6e-6, 2.3e-6, 3.6e-6
        "cusolver_orgqr_ffi": 6e-7,  # 9e-7, 4e-7, 5e-7
        "cusolver_syevd_ffi": 5e-6,  # 3.6e-6, 6.2e-6, 8.8e-6; many: 3e-6 to 5e-6
        "cusolver_gesvdj_ffi": 1.6e-5,  # 1e-5, 1.5e-5, 3e-5
    },
    host_bandwidth=5.3e10,  # 1 GiB, either way; hidden by matrix products without a loss
)
H100 = H200._replace(bandwidth=H200.bandwidth * 3.35 / 4.8)
_SPEEDS = {"gpu": H200, "gpu-h200": H200, "gpu-h100": H100}


def speeds_of(machine: Machine) -> Speeds | None:
    """The speeds of a machine: of its chip, else of its platform; None where none is known."""
    chip = machine.chip
    measured = _SPEEDS.get(machine.name) or _SPEEDS.get(machine.platform)
    if measured is None and chip is not None and chip.bandwidth:
        return _by_data_sheet(chip)
    return measured


_AS_PRODUCTS = ConvolutionSpeeds(
    start=0.0,
    overlap=0.0,
    few_features=1,
    few_summed=1,
    half_features=0,
    by_filter=1.0,
    narrow_by_filter=1.0,
    dilated=1.0,
    volumes=1.0,
    long_window=1 << 62,
    term=0.0,
    narrow_term=0.0,
    volume_term=0.0,
    narrow_volume_term=0.0,
    group_share=1,
    slow_groups=1.0,
)
_AS_BYTES = IndexingSpeeds(
    sector=0,
    cache=0,
    lookup=0.0,
    fetched=0.0,
    added=1.0,
    ordered=1.0,
    swapped=1.0,
    narrow_swapped=1.0,
    addition=0.0,
    swap=0.0,
    crowd=0,
)


_AS_PASSES = SortSpeeds(start=0.0, element=0.0, step=0.0)
_AT_ONCE = ArithmeticSpeeds(operations=inf, results=inf, term=0.0)


def _by_data_sheet(chip: Chip) -> Speeds:
    """A TPU: float32 is multiplied in bfloat16, once, or six times where it is to be exact."""
    return Speeds(
        bandwidth=chip.bandwidth,
        launch=0.0,
        lone_launch=0.0,
        loop_launch=0.0,
        round_trip=0.0,
        flops={"f32": float(chip.flops)},
        exact_flops=chip.flops / 6,
        overlap=0.0,
        half_product=0,
        product_start=0.0,
        convolutions=_AS_PRODUCTS,
        matrix=0.0,
        blocks=0,
        indexing=_AS_BYTES,
        sorts=_AS_PASSES,
        arithmetic=_AT_ONCE,
        columns={},
        host_bandwidth=chip.bandwidth / HOST_FACTOR,
        is_measured=False,
    )
