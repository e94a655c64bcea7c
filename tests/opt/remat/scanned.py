"""Programs of XLA's with a loop that stacks values for another."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

from hlomem import hlo
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.pipeline import Stages, in_text_order, start_stages
from tests.places import GOLDENS

SCANNED: list[Path] = [
    GOLDENS / "pairs" / name / "module.hlo"
    for name in ("stacked_layers_added/after", "scan_unrolled/before", "remat_removed/after")
]
HANDED: list[Path] = sorted((GOLDENS / "handed").glob("*/*.hlo.gz"))
"""As compilers hand them over. For a TPU several stacks are written by one fusion, for a GPU some
asynchronously; XLA:CPU puts small loops into calls."""
ALL: list[Path] = SCANNED + HANDED


def name_of(path: Path) -> str:
    """A name for a program in a list of tests."""
    if path in HANDED:
        return f"{path.parent.name}-{path.name.partition('.')[0]}"
    return path.parent.parent.name


@cache
def scanned_text(path: Path) -> str:
    """The text of one of them."""
    if path in HANDED:
        return gzip.decompress(path.read_bytes()).decode()
    return path.read_text(encoding="utf-8")


def scanned_stages(path: Path) -> Stages:
    """The stages of one of them."""
    module = hlo.parse(scanned_text(path))
    if path not in HANDED:
        return start_stages(module, order_lists=in_text_order)
    target = path.parent.name.replace("cuda", "gpu")
    machine = find_machine(*target.split("-"))
    options = options_for(machine, Release("jaxlib", (0, 12, 0, 1)))
    return start_stages(module, options, order_lists=in_text_order)
