"""A loss over a large vocabulary and its gradients, small, and its region in pieces."""

from __future__ import annotations

from pathlib import Path

from hlomem import hlo
from hlomem.hlo.ir import HloModule
from hlomem.hlo.text.printer import format_module
from hlomem.machines.registry import find_machine
from hlomem.opt.pieces.editor import compute_in_pieces
from hlomem.opt.pieces.region import Reach, Region, find_region

LOSS = (Path(__file__).parent / "loss.hlo").read_text(encoding="utf-8")


def region_of(module: HloModule, name: str, dimension: int, least: int = 4096) -> Region | None:
    """The region that grows from a value of a CPU's program."""
    seed = module.entry.find(name)
    assert seed is not None
    return find_region(seed, dimension, Reach(module.entry), find_machine("cpu", "").size_of, least)


def loss_in_pieces(pieces: int = 4) -> tuple[HloModule, HloModule]:
    """The program, and the same with its gradient in pieces, read from its text."""
    given = hlo.parse(LOSS)
    region = region_of(given, "gradient", 0)
    assert region is not None
    made = compute_in_pieces(given, region, pieces)
    return given, hlo.parse(format_module(made))
