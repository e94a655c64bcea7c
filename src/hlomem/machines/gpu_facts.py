"""GPU descriptions for compiling without a device.

The text of a `GpuTargetConfigProto` (`stream_executor/device_description.proto`) with the data
sheet's numbers, which are also those of `xla/backends/gpu/target_config/specs`.
"""

from __future__ import annotations

from typing import NamedTuple


class Generation(NamedTuple):
    """The numbers that GPUs of one compute capability share."""

    shared_per_core: int
    shared_per_block: int
    threads_per_core: int
    fpus: int


_GENERATIONS = {
    "7.0": Generation(98304, 98304, 2048, 64),
    "7.5": Generation(65536, 65536, 1024, 64),
    "8.0": Generation(167936, 166912, 2048, 64),
    "8.6": Generation(102400, 101376, 1536, 128),
    "8.9": Generation(102400, 101376, 1536, 128),
    "9.0a": Generation(233472, 232448, 2048, 128),
    "10.0a": Generation(233472, 232448, 2048, 128),
    "12.0": Generation(131072, 101376, 1536, 128),
}
"""By compute capability; `a` has features that later ones have not."""


class GpuFacts(NamedTuple):
    """The numbers in which GPUs differ."""

    title: str
    capability: str
    """A key of `_GENERATIONS`."""
    cores: int
    """Streaming multiprocessors."""
    clock_ghz: float
    memory_size: int
    memory_bandwidth: int
    """Bytes a second."""
    l2_size: int

    @property
    def major(self) -> str:
        """9 of `9.0a`."""
        return self.capability.partition(".")[0]

    @property
    def minor(self) -> str:
        """0 of `9.0a`."""
        return self.capability.partition(".")[2].rstrip("a")

    @property
    def extension(self) -> str:
        """Its features, by XLA's word."""
        return "ACCELERATED_FEATURES" if self.capability.endswith("a") else "NONE"

    @property
    def generation(self) -> Generation:
        return _GENERATIONS[self.capability]


GPUS = {
    "t4": GpuFacts("Tesla T4", "7.5", 40, 1.59, 15 << 30, 320_000_000_000, 4 << 20),
    "l4": GpuFacts("NVIDIA L4", "8.9", 58, 2.04, 23_034 << 20, 300_000_000_000, 48 << 20),
    "v100": GpuFacts(
        "Tesla V100-SXM2-16GB", "7.0", 80, 1.53, 16_935_682_048, 898_048_000_000, 6 << 20
    ),
    "a6000": GpuFacts("NVIDIA RTX A6000", "8.6", 84, 1.8, 51_041_271_808, 768_096_000_000, 6 << 20),
    "rtx4090": GpuFacts(
        "NVIDIA GeForce RTX 4090", "8.9", 128, 2.52, 24_564 << 20, 1_008_000_000_000, 72 << 20
    ),
    "a100": GpuFacts(
        "NVIDIA A100-SXM4-40GB", "8.0", 108, 1.41, 42_331_013_120, 1_555_200_000_000, 40 << 20
    ),
    "a100-80": GpuFacts(
        "NVIDIA A100-SXM4-80GB", "8.0", 108, 1.41, 85_100_068_864, 2_039_040_000_000, 40 << 20
    ),
    "h100": GpuFacts(
        "NVIDIA H100 80GB HBM3", "9.0a", 132, 1.98, 84_942_979_072, 3_352_320_000_000, 50 << 20
    ),
    "h200": GpuFacts(
        "NVIDIA H200", "9.0a", 132, 1.98, 151_397_597_184, 4_800_000_000_000, 50 << 20
    ),
    "b200": GpuFacts(
        "NVIDIA B200", "10.0a", 148, 1.965, 191_514_411_008, 7_672_320_000_000, 132_644_864
    ),
    "rtx6000pro": GpuFacts(
        "NVIDIA RTX PRO 6000 Blackwell", "12.0", 188, 2.6, 96 << 30, 1_792_000_000_000, 128 << 20
    ),
}
"""By the names of targets."""
_CONFIG = """gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {facts.generation.shared_per_core}
  threads_per_core_limit: {facts.generation.threads_per_core}
  core_count: {facts.cores}
  fpus_per_core: {facts.generation.fpus}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {facts.memory_bandwidth}
  l2_cache_size: {facts.l2_size}
  clock_rate_ghz: {facts.clock_ghz}
  device_memory_size: {facts.memory_size}
  shared_memory_per_block_optin: {facts.generation.shared_per_block}
  cuda_compute_capability {{
    major: {facts.major}
    minor: {facts.minor}
    feature_extension: {facts.extension}
  }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  device_vendor: "NVIDIA Corporation"
  platform_version: "Compute Capability {facts.capability}"
  device_address_bits: 64
  pcie_bandwidth: 34359738368
  ecc_enabled: true
  name: "{facts.title}"
  driver_version: "13.0.0"
  runtime_version: "12.8.0"
  compile_time_toolkit_version: "12.8.0"
  dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{
  major: 9
  minor: 10
}}
device_description_str: "{facts.title}"
"""


def target_config(gpu: str) -> str:
    """The `GpuTargetConfigProto` of a GPU, as text."""
    return _CONFIG.format(facts=GPUS[gpu])
