"""Plans on their way to libtpu: packed again, checked, read back."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest

from hlomem.base.errors import HlomemError
from hlomem.dump.dump import Dump
from hlomem.libtpu.plans import (
    PlanError,
    check_executable,
    checked,
    hbm_bytes,
    temporary_bytes,
    with_packing,
)
from hlomem.machines.registry import find_machine
from hlomem.proto.dump import make_dump
from hlomem.proto.module import read_module
from hlomem.proto.programs import open_programs
from hlomem.proto.schema import parse_message
from tests.check.faults import Fault, judge
from tests.libtpu.mutants import ALWAYS_HARMFUL, MUTANTS, mutant
from tests.places import ROOT

PROTOS = ROOT / "tests" / "goldens" / "protos"
V5E = find_machine("tpu", "v5e")


@cache
def _program(name: str) -> tuple[bytes, bytes]:
    """The module and the plan of a compile by libtpu."""
    data = (PROTOS / name / "program.hlo.pb").read_bytes()
    found = open_programs(data, name, 1 << 30)[0]
    return found.module, found.assignment.SerializeToString(deterministic=True)


def _dump(module: bytes, plan: bytes) -> Dump:
    return make_dump(read_module(module, ""), parse_message("BufferAssignment", plan))


@pytest.mark.parametrize("name", ["tpu_scan", "tpu_donated"])
def test_libtpus_own_plan_is_accepted(name: str) -> None:
    assert checked(*_program(name), V5E).module is not None


def test_harmful_mutants_are_refused_before_they_are_linked() -> None:
    module, plan = _program("tpu_scan")
    before = _dump(module, plan)
    refused = set()
    for seed in range(120):
        kind = list(MUTANTS)[seed % len(MUTANTS)]
        broken = mutant(plan, kind, Random(seed))  # noqa: S311 - the same every time
        if broken is None or not is_harmful(before, module, broken, kind):
            continue
        with pytest.raises(HlomemError):
            checked(module, broken, V5E)
        refused.add((kind, seed))
    assert len(refused) > 50
    assert len({kind for kind, _ in refused}) > 6


def is_harmful(before: Dump, module: bytes, broken: bytes, kind: str) -> bool:
    """Whether the oracle of faults, which knows nothing of the checker, is sure of harm."""
    if kind in ALWAYS_HARMFUL:
        return True
    assert before.module is not None
    return judge(before, Fault(kind, _dump(module, broken)), before.module).harmful is True


def _spread(plan: bytes, by: int) -> bytes:
    """The plan with a gap before its last temporaries in HBM."""
    message = parse_message("BufferAssignment", plan)
    found: Any = next(
        each
        for each in message.buffer_allocations
        if each.color == 0
        and len(each.assigned) > 1
        and not each.is_entry_computation_parameter
        and not each.maybe_live_out
    )
    last = max(place.offset for place in found.assigned)
    for place in found.assigned:
        place.offset += by if place.offset == last else 0
    found.size += by
    spread: bytes = message.SerializeToString(deterministic=True)
    return spread


def test_a_smaller_packing_is_taken_and_a_larger_one_is_not() -> None:
    module, tight = _program("tpu_scan")
    wide = _spread(tight, 4096)
    packed = with_packing(wide, tight)
    assert packed == tight
    assert temporary_bytes(wide) == temporary_bytes(tight) + 4096
    assert hbm_bytes(wide) == hbm_bytes(tight) + 4096
    assert with_packing(tight, wide) is None
    assert with_packing(tight, tight) is None
    checked(module, packed, V5E)


def test_a_packing_of_other_values_is_not_taken() -> None:
    _, tight = _program("tpu_scan")
    _, other = _program("tpu_donated")
    assert with_packing(_spread(tight, 4096), other) is None


def test_an_executable_must_hold_the_plan_it_was_given() -> None:
    data = (PROTOS / "tpu_donated" / "executable.bin").read_bytes()
    plan = open_programs(data, "", 1 << 30)[0].assignment.SerializeToString()
    check_executable(data, plan, V5E)
    with pytest.raises(PlanError, match="linked with another plan than it was given"):
        check_executable(data, _program("tpu_scan")[1], V5E)
