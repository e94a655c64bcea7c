"""The cheapest set: the order in which sets are compiled, and the first that fits."""

from __future__ import annotations

from typing import Any

from hlomem.jax.compile.messages import Facts
from hlomem.jax.known_plans import FoundPlan, KnownPlan
from hlomem.jax.trials.changes import Change
from hlomem.jax.trials.cheapest import find_cheapest, find_together
from hlomem.jax.trials.trying import Trials, Tried
from hlomem.machines.capacity import Capacity

SAVES = {"donate": 20, "dots": 30, "checkpoint": 50, "chunks": 40}
FLOPS = {"donate": 0, "dots": 10, "checkpoint": 30, "chunks": 35}


def _plan(size: int, flops: int = 100) -> FoundPlan:
    facts = Facts(module_name="jit_f", flops=flops)
    plan = KnownPlan(
        size=size, is_refused=False, host=0, roles={}, flops=None, sent=None, seconds=None
    )
    return FoundPlan(plan, facts, None)


class _Trials(Trials):
    """A compiler with which savings add up."""

    def __init__(self) -> None:
        super().__init__(None, _plan(100), None, None, lambda _: None)  # type: ignore[arg-type]
        self.compiled: list[set[str]] = []

    def try_together(self, changes: tuple[Change, ...]) -> Tried:
        names = {change.title for change in changes}
        self.compiled.append(names)
        size = 100 - sum(SAVES[name] for name in names)
        return Tried(changes, _plan(size, 100 + sum(FLOPS[name] for name in names)))


def _change(name: str, *sites: str) -> Change:
    effort = FLOPS[name] / 100
    return Change(name, name, "time", "", sites=frozenset({*sites} or {name}), effort=effort)


CHANGES = [_change("checkpoint", "layers"), _change("dots", "layers")]
CHANGES += [_change("donate"), _change("chunks")]


def _cheapest(limit: int) -> tuple[Any, list[set[str]]]:
    trials = _Trials()
    tried = [trials.try_together((change,)) for change in CHANGES]
    trials.compiled.clear()
    return find_cheapest(trials, tried, Capacity(size=limit)), trials.compiled


def test_a_program_that_fits_is_left_alone() -> None:
    found, compiled = _cheapest(100)
    assert (found.titles, found.fits, compiled) == ((), True, [])


def test_the_cheapest_change_that_is_enough_is_taken_without_another_compile() -> None:
    found, compiled = _cheapest(80)
    assert (found.titles, found.size, compiled) == (("donate",), 80, [])


def test_cheap_changes_together_come_before_an_expensive_one() -> None:
    found, compiled = _cheapest(50)
    assert set(found.titles) == {"dots", "donate"}
    assert compiled == [{"dots", "donate"}]
    assert found.cost == "+10.0% FLOPs of matrix products; time"


def test_changes_of_the_same_layers_are_not_combined() -> None:
    found, compiled = _cheapest(-20)
    assert compiled == [{"checkpoint", "donate", "chunks"}]  # no other set can be enough
    assert (found.fits, found.size) == (False, -10)


def test_the_best_of_each_kind_are_taken_together() -> None:
    trials = _Trials()
    tried = [trials.try_together((change,)) for change in CHANGES]
    found = find_together(trials, tried)
    assert found is not None
    assert set(found.titles) == {"checkpoint", "donate", "chunks"}
    assert (found.limit, found.size) == (None, -10)
