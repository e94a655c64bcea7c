"""GPU descriptions for compiling without a device.

The text of a `GpuTargetConfigProto` (`stream_executor/device_description.proto`) with the data
sheet's numbers, which are also those of `xla/backends/gpu/target_config/specs`.
"""

from __future__ import annotations

from typing import NamedTuple


class GpuFacts(NamedTuple):
    """The numbers in which GPUs differ."""

    title: str
    compute_capability: int
    cores: int
    """Streaming multiprocessors."""
    clock_ghz: float
    memory_size: int
    memory_bandwidth: int
    """Bytes a second."""
    l2_size: int


GPUS = {
    "h100": GpuFacts(
        "NVIDIA H100 80GB HBM3", 9, 132, 1.98, 84_942_979_072, 3_352_320_000_000, 50 << 20
    ),
    "h200": GpuFacts("NVIDIA H200", 9, 132, 1.98, 151_397_597_184, 4_800_000_000_000, 50 << 20),
    "b200": GpuFacts(
        "NVIDIA B200", 10, 148, 1.965, 191_514_411_008, 7_672_320_000_000, 132_644_864
    ),
}
"""By the names of targets."""
_CONFIG = """gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: {facts.cores}
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {facts.memory_bandwidth}
  l2_cache_size: {facts.l2_size}
  clock_rate_ghz: {facts.clock_ghz}
  device_memory_size: {facts.memory_size}
  shared_memory_per_block_optin: 232448
  cuda_compute_capability {{
    major: {facts.compute_capability}
    feature_extension: ACCELERATED_FEATURES
  }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  device_vendor: "NVIDIA Corporation"
  platform_version: "Compute Capability {facts.compute_capability}.0a"
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
