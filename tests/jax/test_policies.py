"""Policies of `jax.checkpoint` tried on a factory's program: sizes are XLA's own."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import hlomem.jax
from hlomem.jax import factory_front as policies
from hlomem.jax.compile.messages import Job
from hlomem.jax.factory_front import try_policies
from tests.jax import factories
from tests.report.data.test_front import point

jax: Any = pytest.importorskip("jax", reason="jax is not installed")
pytest.importorskip("jax.extend.xla", reason="this jax has no hook for passes")

HERE = "tests.jax.factories"
GIVEN = point(0, 1 << 20, "as given", "given")


@pytest.fixture
def _one_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One instead of four, for the time each takes."""
    monkeypatch.setattr(policies, "POLICIES", ("nothing_saveable",))


def _temporaries(checkpoint: Any) -> int:
    function, arguments = factories.checkpointed(checkpoint=checkpoint)
    report = function.lower(*arguments).compile().memory_analysis()
    return int(report.temp_size_in_bytes)


@pytest.mark.usefixtures("_one_policy")
def test_a_factorys_own_places_are_wrapped_and_planned_by_xla() -> None:
    found = hlomem.jax.front(factories.checkpointed, fit="1 MiB")
    given, tried = (
        next(its for its in found.front if its.kind == kind) for kind in ("given", "policy")
    )
    policy = jax.checkpoint_policies.nothing_saveable
    assert tried.temporaries == _temporaries(partial(jax.checkpoint, policy=policy))
    assert given.temporaries == _temporaries(lambda function: function)
    assert tried.temporaries != given.temporaries
    assert tried.flops > 0
    assert tried.total - tried.temporaries == given.total - given.temporaries
    assert tried.name == "nothing_saveable"
    assert "jax.checkpoint around what the factory wraps with" in " ".join(str(found).split())
    assert tried.code.startswith("policy = jax.checkpoint_policies.nothing_saveable\n")
    assert ("None of the 1 policies" in str(found)) is (tried.total > 1 << 20)


@pytest.mark.usefixtures("_one_policy")
def test_without_them_what_is_differentiated_is_wrapped_and_then_scans() -> None:
    job = Job(factory=f"{HERE}:step", target="cpu", settings={"batch": 64})
    tried = try_policies(job, GIVEN, 600.0)
    assert [its.name for its in tried.points] == [
        "nothing_saveable, whole",
        "nothing_saveable, scan",
    ]
    assert tried.points[1].temporaries < tried.points[0].temporaries
    assert len(tried.notes) == 2


def test_where_nothing_is_differentiated_nothing_is_tried_and_it_is_said() -> None:
    tried = try_policies(Job(factory=f"{HERE}:keyworded", target="cpu"), GIVEN, 600.0)
    assert tried.points == ()
    assert "nothing was seen to be differentiated" in tried.notes[0]


@pytest.mark.usefixtures("_one_policy")
def test_a_factory_that_fails_is_named_in_a_note() -> None:
    tried = try_policies(Job(factory=f"{HERE}:raises", target="cpu"), GIVEN, 600.0)
    assert tried.points == ()
    assert f"`{HERE}:raises` raised: ValueError" in tried.notes[0]
