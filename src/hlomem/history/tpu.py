"""The rules for libtpu (docs/tpu-rules.md)."""

from __future__ import annotations

from hlomem.history.computations.tpu_fusion import merged_fusions
from hlomem.history.computations.tpu_passes import TPU_PASSES
from hlomem.history.rules import fitted, observed
from hlomem.history.tables import SearchLimit, Tables, Vanishing

TABLES = Tables(
    stages=TPU_PASSES,
    vanishing=(
        Vanishing(
            "producers taken into fusions with several results",
            observed(
                "pass dumps of libtpu 0.0.51: tpu_fusion of multi_output_fusion_and_bf16_folding",
                "libtpu-0.0.51/tpu-v5p/branches_with_rows",
            ),
            find=merged_fusions,
        ),
    ),
    limits=(
        SearchLimit(
            "computations that are gone",
            fitted(
                "online_topsort.h; every loop is cloned several times before the last clone stays",
                "libtpu-0.0.51/tpu-tpu7x/nested_while",
            ),
            delta=16,
        ),
    ),
)
