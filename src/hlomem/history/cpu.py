"""The rules for the CPU compiler."""

from __future__ import annotations

from hlomem.history.computations.cpu_passes import CPU_PASSES
from hlomem.history.computations.lost_calls import count_lost_calls
from hlomem.history.rules import cited
from hlomem.history.tables import LostCalls, Tables

TABLES = Tables(
    stages=CPU_PASSES,
    lost_calls=(
        LostCalls(
            "calls that are gone",
            cited("online_topsort.h: UpdateDelta", "jaxlib-0.12.0.1/cpu/deep_loops"),
            count=count_lost_calls,
        ),
    ),
)
