"""The rules for the GPU compiler."""

from __future__ import annotations

from hlomem.history.computations.gpu_collectives import synchronized_collectives
from hlomem.history.computations.gpu_passes import GPU_PASSES
from hlomem.history.instructions.gpu import GPU_STEPS
from hlomem.history.rules import CITED, FITTED
from hlomem.history.tables import SearchLimit, Tables, Vanishing
from hlomem.history.users.gpu import GPU_USERS

TABLES = Tables(
    stages=GPU_PASSES,
    limits=(
        SearchLimit(
            "computations that are gone",
            FITTED,
            "online_topsort.h; functions were inlined, and clones of their loops became one again",
            "jaxlib-0.12.0.1/gpu-h200/sorts_in_nested_loops",
            delta=8,
        ),
    ),
    steps=GPU_STEPS,
    users=GPU_USERS,
    vanishing=(
        Vanishing(
            "collectives that are synchronous again",
            CITED,
            "service/gpu/gpu_hlo_schedule.cc: RunAsyncCollectivesConversionPasses;"
            " hlo/transforms/collectives/convert_async_collectives_to_sync.cc",
            "jaxlib-0.11.2/gpu-h200/collectives_in_branches",
            find=synchronized_collectives,
        ),
    ),
)
