"""Scalars of pipelined loops stay in registers, and nothing else does."""

from __future__ import annotations

import hlomem
from hlomem.check.registers import in_registers
from hlomem.view.joined import join_dump
from tests.places import GOLDENS

NEWEST = GOLDENS / "xla" / "libtpu-0.0.51"


def test_only_scalars_without_tiles_of_pipelined_programs_are() -> None:
    joined = join_dump(hlomem.load(NEWEST / "tpu-tpu7x" / "pipelined_attention"))
    kept = in_registers(joined)
    assert kept
    assert {joined.placed_by_id[number].value.shape for number in kept} == {"s32[]"}


def test_without_a_pipelined_loop_none_is() -> None:
    joined = join_dump(hlomem.load(NEWEST / "tpu-tpu7x" / "nested_while"))
    assert not in_registers(joined)
