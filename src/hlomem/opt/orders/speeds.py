"""How fast devices are, for the model of time; the only place of these numbers.

Those of the H200 were fitted to measurements on one (`tools/calibrate_clock.py`, jax 0.11.2), which
docs/measurements.md lists: what each number is taken from stands next to it. Those of the H100 are
the same with the bandwidth of its data sheet. Those of a TPU are its data sheet's, and nothing was
run on one: what takes less time by them may still not do many more operations. Without speeds time
is counted in bytes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.opt.constants import HOST_FACTOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.machines.machine import Chip, Machine


class Speeds(NamedTuple):
    """A device; times in seconds."""

    bandwidth: float
    """Bytes a second, reads and writes together."""
    launch: float
    """Between two kernels of a program, which is one CUDA graph."""
    lone_launch: float
    """The least that a kernel takes in a program that calls cuDNN, which is no such graph."""
    loop_launch: float
    """The least that a kernel of a loop takes: the host starts each, while others run."""
    loop_pass: float
    """Of one iteration in addition to its kernels."""
    flops: Mapping[str, float]
    """Operations a second of matrix products, by the type of their operands."""
    exact_flops: float
    """The same for float32 with `precision="highest"`."""
    overlap: float
    """The share of the shorter of memory and arithmetic that a matrix product does not hide."""
    convolution_overlap: float
    """The same of a convolution."""
    few_features: int
    """Output features of a group below which a convolution takes as long as for that many."""
    few_inputs: int
    """The same of input features."""
    volumes: float
    """How much longer a convolution of three dimensions takes than its operations say."""
    half_product: int
    """The least of its three sizes at which a matrix product is half as fast as a large one."""
    by_filter: float
    """How much longer the gradient by the filter takes than the convolution."""
    scatter_factor: int
    """How much longer a byte takes that a scatter adds to what is there."""
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
    launch=1.2e-6,  # 400 small kernels after another against 100
    lone_launch=6e-6,  # residual networks and U-Nets of small kernels
    loop_launch=2.2e-6,  # an iteration of four small kernels: 10.2e-6
    loop_pass=2e-6,
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
    overlap=0.5,  # 16384 x 512 x 8192, 16384 x 2048 x 2048
    convolution_overlap=1.0,
    few_features=64,  # convolutions with 32 output features
    few_inputs=16,  # the gradients of single examples, as convolutions of two features in groups
    volumes=8.0,  # a U-Net of three dimensions, all of whose convolutions take 11 times as long
    half_product=256,  # products of models take 1.4 times as long as at 8192 cubed
    by_filter=2.2,  # 16 convolutions of 64 to 64 features
    scatter_factor=4,  # rows of 512 numbers added to a table: 5; graph networks: 2 and 5
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


def _by_data_sheet(chip: Chip) -> Speeds:
    """A TPU: float32 is multiplied in bfloat16, once, or six times where it is to be exact."""
    return Speeds(
        bandwidth=chip.bandwidth,
        launch=0.0,
        lone_launch=0.0,
        loop_launch=0.0,
        loop_pass=0.0,
        flops={"f32": float(chip.flops)},
        exact_flops=chip.flops / 6,
        overlap=0.0,
        convolution_overlap=0.0,
        few_features=1,
        few_inputs=1,
        volumes=1.0,
        half_product=0,
        by_filter=1.0,
        scatter_factor=1,
        host_bandwidth=chip.bandwidth / HOST_FACTOR,
        is_measured=False,
    )
