"""Faults in real plans: every harmful one is found, the right pair named, no other alarm."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import hlomem
from hlomem import hlo
from hlomem.check.verify import verify
from hlomem.machines.cpu import CPU
from hlomem.machines.machine import Machine
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import find_release
from tests.check.faults import KINDS, Injector, Label, judge
from tests.check.small import planned
from tests.conftest import GOLDENS

DUMPS = sorted((GOLDENS / "xla").glob("*/*/*"))
SAMPLE = 5
"""Every dump gets each fifth kind, other ones than its neighbours: some 1,700 faults."""


def machine_of(path: Path) -> Machine:
    """The machine a golden is of: its folders are `jaxlib-0.7.2/cpu`, `libtpu-0.0.2/tpu-v5p`."""
    name, _, chip = path.parent.name.partition("-")
    return options_for(find_machine(name, chip), find_release(path.parent.parent.name)).machine


def test_there_are_at_least_fifteen_kinds() -> None:
    assert len(KINDS) >= 15


@pytest.mark.parametrize("number", range(len(DUMPS)), ids=lambda n: "/".join(DUMPS[n].parts[-3:]))
def test_every_harmful_fault_is_found_and_no_other(number: int) -> None:
    path = DUMPS[number]
    dump, machine = hlomem.load(path), machine_of(path)
    module = hlo.parse((path / "module.hlo").read_text())
    assert verify(dump, machine=machine).is_clean
    injector = Injector(dump, module, machine, seed=7)
    named = Counter[bool]()
    for kind, maker in list(KINDS.items())[number % SAMPLE :: SAMPLE]:
        fault = injector.make(kind, maker)
        if fault is None:
            continue
        label = judge(dump, fault, module)
        if label.harmful is not None and not (fault.by_module or label.by_module):
            alone = verify(fault.dump, machine=machine)
            assert bool(alone.findings) is label.harmful, (kind, *map(str, alone.findings))
        verdict = verify(fault.dump, module=module, machine=machine)
        if label.harmful is not None:
            assert bool(verdict.findings) is label.harmful, (kind, *map(str, verdict.findings))
        if label.pairs:
            pairs = {frozenset(each.id for each in found.values) for found in verdict.findings}
            named[bool(pairs & label.pairs)] += 1
    assert named[False] <= named[True] / 99


UPDATED = """HloModule m, is_scheduled=true

second {
  x = f32[] parameter(0)
  ROOT y = f32[] parameter(1)
}

FUSION
ENTRY e {
  p = f32[16]{0} parameter(0)
  n = f32[1]{0} parameter(1)
  i = s32[] parameter(2)
  a = f32[16]{0} negate(p)
  OUTSIDE
  c = f32[16]{0} abs(u)
  ROOT r = f32[1]{0} slice(c), slice={[0:1]}
}
"""
FUSION = """fused {
  whole = f32[16]{0} parameter(0)
  part = f32[1]{0} parameter(1)
  at = s32[] parameter(2)
  ROOT w = """
FUSED = "u = f32[16]{0} fusion(a, n, i), kind=kLoop, calls=fused"
UPDATE = "f32[16]{0} dynamic-update-slice(WHOLE, PART, AT)"
SCATTER = (
    "f32[16]{0} scatter(WHOLE, AT, PART), update_window_dims={0}, inserted_window_dims={}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=second"
)


def module_with(update: str, *, is_fused: bool) -> str:
    """A module that updates a value, in a fusion or not."""
    outside = update.replace("WHOLE", "a").replace("PART", "n").replace("AT", "i")
    if not is_fused:
        return UPDATED.replace("FUSION", "").replace("OUTSIDE", f"u = {outside}")
    inside = update.replace("WHOLE", "whole").replace("PART", "part").replace("AT", "at")
    return UPDATED.replace("FUSION", FUSION + inside + "\n}\n").replace("OUTSIDE", FUSED)


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("update", [UPDATE, SCATTER])
def test_an_update_is_not_torn_from_its_operand(update: str, is_fused: bool) -> None:
    text = module_with(update, is_fused=is_fused)
    dump, module = planned(text), hlo.parse(text)
    assert verify(dump, module=module, machine=CPU).is_clean
    assert dump.values is not None
    ids = {each.name: each.id for each in dump.values.values}
    moved = set[int]()
    for seed in range(20):
        fault = Injector(dump, module, CPU, seed).make("tear", KINDS["tear"])
        assert fault is not None
        label = judge(dump, fault, module)
        found = verify(fault.dump, module=module, machine=CPU).findings
        alone = verify(fault.dump, machine=CPU).findings
        moved |= fault.ids
        if fault.ids == {ids["c"]}:
            assert (label.harmful, found, alone) == (False, (), ())
        else:
            pair = {ids["a"], ids["u"]}
            assert label == Label(harmful=True, pairs={frozenset(pair)}, by_module=is_fused)
            assert [each.rule for each in found] == ["alias/torn"]
            assert {each.id for each in found[0].values} == pair
            assert bool(alone) is not is_fused
    assert moved == {ids["a"], ids["u"], ids["c"]}
