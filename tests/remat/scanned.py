"""Programs of XLA's with a loop that stacks values for another."""

from __future__ import annotations

from pathlib import Path

from hlomem import hlo
from hlomem.pipeline import Stages, in_text_order, start_stages
from tests.places import GOLDENS

SCANNED: list[Path] = [
    GOLDENS / "pairs" / name / "module.hlo"
    for name in ("stacked_layers_added/after", "scan_unrolled/before", "remat_removed/after")
]


def scanned_stages(path: Path) -> Stages:
    """The stages of one of them."""
    module = hlo.parse(path.read_text(encoding="utf-8"))
    return start_stages(module, order_lists=in_text_order)
