"""Programs that are made to fit by what a compiler says of them, which need not be foreseen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hlomem import hlo
from hlomem.base.errors import HlomemError, UnsupportedError
from hlomem.jax import log, proven_fits
from hlomem.jax.module_proto import text_of
from hlomem.jax.plan_only import CompileError
from hlomem.jax.proven_fits import MAX_FITS, ProvenFit, prove_fit
from hlomem.jax.transform import Limits, Transform
from hlomem.opt.order_search import Rules, improve_stages
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.pipeline import Stages, in_text_order, start_stages
from tests.opt.remat.programs import chain

_hlo: Any = pytest.importorskip("jaxlib._hlo", reason="jaxlib is not installed")
RULES = Rules("low")
VALUE = 4096 * 4
"""Bytes of each value of the chain."""
PROTO = bytes(_hlo.hlo_module_from_text(chain(12)).as_serialized_hlo_module_proto())


def _stages(proto: bytes = PROTO) -> Stages:
    return start_stages(hlo.parse(text_of(proto)), order_lists=in_text_order)


def _size(proto: bytes) -> int:
    return temporary_bytes(_stages(proto))


NEEDED = _stages().assignment.total_bytes
REST = NEEDED - _size(PROTO)


def _prove(limit: int, plan: Callable[[bytes], int], rules: Rules = RULES) -> ProvenFit:
    return prove_fit(PROTO, improve_stages("m", _stages(), rules), limit, rules, plan, plan(PROTO))


def test_a_program_that_was_seen_to_fit_is_taken() -> None:
    limit = REST + int(0.6 * (NEEDED - REST))
    proven = _prove(limit, _size)
    assert proven.answer is not None
    assert proven.temporaries == _size(proven.answer) <= limit - REST
    assert 0 < proven.tried <= MAX_FITS["low"]
    assert proven.problems == ()


def test_more_is_asked_for_where_the_compiler_needs_more_than_foreseen() -> None:
    limit = REST + int(0.8 * (NEEDED - REST))
    once = _prove(limit, _size)

    def needs_more(proto: bytes) -> int:
        return _size(proto) + (0 if proto == PROTO else VALUE)

    proven = _prove(limit, needs_more, Rules("default"))
    assert once.made is not None
    assert proven.made is not None
    assert proven.temporaries <= limit - REST
    assert proven.made.clones > once.made.clones


def test_a_program_that_cannot_be_planned_is_not_taken() -> None:
    def fails(proto: bytes) -> int:
        if proto == PROTO:
            return _size(proto)
        raise CompileError("no plan\nlong story")

    proven = _prove(REST + 3 * VALUE, fails)
    assert proven.answer is None
    assert proven.problems == ("no plan",)


def test_a_program_that_judges_refuse_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proven_fits, "judge_edited", lambda *_: ["it is wrong"])
    proven = _prove(REST + 3 * VALUE, _size)
    assert (proven.answer, proven.tried) == (None, 0)
    assert proven.problems == ("values computed again were rejected: it is wrong",)


@pytest.mark.parametrize(
    ("share", "kind", "says"), [(0.6, "improved", "programs tried"), (2.0, "kept", "")]
)
def test_the_pass_reports_what_the_compiler_planned(share: float, kind: str, says: str) -> None:
    log.forget()
    limits = Limits(0, 50_000, fit=REST + int(share * (NEEDED - REST)))
    options = _stages().options
    make = Transform("tpu", options, RULES, limits, _size, foresees_orders=True)
    answer = make(PROTO)
    [outcome] = log.report().outcomes
    assert (outcome.kind, outcome.limit) == (kind, limits.fit)
    assert says in outcome.reason
    assert outcome.total == (NEEDED if answer is None else _stages(answer).assignment.total_bytes)


def test_the_pass_keeps_a_program_that_no_compiler_plans() -> None:
    def broken(_: bytes) -> int:
        raise HlomemError("no compiler here")

    log.forget()
    limits = Limits(0, 50_000, fit=REST + VALUE)
    make = Transform("tpu", _stages().options, RULES, limits, broken, foresees_orders=True)
    assert make(PROTO) is None
    [outcome] = log.report().outcomes
    assert "no compiler here" in outcome.reason
    assert outcome.missing == NEEDED - (REST + VALUE)


def _proven(plan: Callable[[int], int], share: float) -> tuple[ProvenFit, int, int]:
    """The outcome for a compiler whose plans are a function of hlomem's, its room, its plans."""
    proto = bytes(_hlo.hlo_module_from_text(chain(32)).as_serialized_hlo_module_proto())
    calls = 0

    def planned(answer: bytes) -> int:
        nonlocal calls
        calls += 1
        module = hlo.parse(text_of(answer))
        return plan(temporary_bytes(start_stages(module, order_lists=in_text_order)))

    stages = start_stages(hlo.parse(text_of(proto)), order_lists=in_text_order)
    before = plan(temporary_bytes(stages))
    rest = stages.assignment.total_bytes - temporary_bytes(stages)
    found = improve_stages("m", stages, Rules("low"))
    room = round(share * before)
    return prove_fit(proto, found, rest + room, Rules(), planned, before), room, calls


def test_less_is_computed_again_where_the_compiler_leaves_room() -> None:
    exact, _, _ = _proven(lambda size: size, 0.5)
    roomy, room, _ = _proven(lambda size: size if size > 400_000 else round(0.7 * size), 0.5)
    assert roomy.temporaries <= room
    assert roomy.flops < exact.flops


def test_more_is_computed_again_where_the_compiler_needs_more() -> None:
    exact, _, _ = _proven(lambda size: size, 0.5)
    tight, room, _ = _proven(lambda size: size if size > 400_000 else round(1.2 * size), 0.5)
    assert tight.temporaries <= room
    assert tight.flops >= exact.flops


def test_the_compiler_is_asked_a_few_times() -> None:
    proven, _, calls = _proven(lambda size: size, 0.3)
    assert proven.tried <= MAX_FITS["default"]
    assert calls >= proven.tried


def test_a_compiler_that_refuses_leaves_the_program() -> None:
    def refuse(size: int) -> int:
        if size < 300_000:
            module = hlo.parse(chain(2))
            raise UnsupportedError(module.source, module.source.first_line, "no", "")
        return size

    proven, _, _ = _proven(refuse, 0.5)
    assert proven.answer is None
    assert proven.problems
