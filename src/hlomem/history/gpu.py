"""The rules for the GPU compiler."""

from __future__ import annotations

from hlomem.history.computations.gpu_collectives import synchronized_collectives
from hlomem.history.computations.gpu_passes import GPU_PASSES
from hlomem.history.rules import cited
from hlomem.history.tables import Tables, Vanishing

TABLES = Tables(
    stages=GPU_PASSES,
    vanishing=(
        Vanishing(
            "collectives that are synchronous again",
            cited(
                "service/gpu/gpu_hlo_schedule.cc: RunAsyncCollectivesConversionPasses;"
                " hlo/transforms/collectives/convert_async_collectives_to_sync.cc",
                "jaxlib-0.11.2/gpu-h200/collectives_in_branches",
            ),
            find=synchronized_collectives,
        ),
    ),
)
