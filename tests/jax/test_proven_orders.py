"""Of the orders that are tried the one is taken that the compiler needs least for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hlomem import hlo
from hlomem.base.errors import HlomemError
from hlomem.jax.module_proto import text_of
from hlomem.jax.plan_only import CompileError
from hlomem.jax.proven_orders import MAX_TRIED, ProvenOrder, prove_orders
from hlomem.jax.transform import Limits, Transform
from hlomem.opt.order_search import Rules, improve_stages
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.pipeline import in_text_order, start_stages
from tests.opt.orders.programs import CPU

_hlo: Any = pytest.importorskip("jaxlib._hlo", reason="jaxlib is not installed")
RULES = Rules("low")
TEXT = (CPU / "g_cholesky_solve" / "module.hlo").read_text(encoding="utf-8")
PROTO = bytes(_hlo.hlo_module_from_text(TEXT).as_serialized_hlo_module_proto())


def _size(proto: bytes) -> int:
    return temporary_bytes(start_stages(hlo.parse(text_of(proto)), order_lists=in_text_order))


def _prove(plan: Callable[[bytes], int]) -> ProvenOrder:
    stages = start_stages(hlo.parse(text_of(PROTO)), order_lists=in_text_order)
    return prove_orders(PROTO, improve_stages("m", stages, RULES), RULES, plan)


def test_the_smallest_plan_wins() -> None:
    proven = _prove(_size)
    assert proven.before == _size(PROTO)
    assert proven.after < proven.before
    assert proven.orders
    assert 0 < proven.tried <= MAX_TRIED["low"]


def test_what_saves_no_more_than_chance_is_not_taken() -> None:
    proven = _prove(lambda proto: 1000 if proto == PROTO else 985)
    assert proven.orders == {}
    assert proven.after == proven.before == 1000


def test_an_order_whose_plan_fails_is_not_taken() -> None:
    def fails(proto: bytes) -> int:
        if proto == PROTO:
            return 1000
        raise CompileError("no plan\nlong story")

    proven = _prove(fails)
    assert proven.orders == {}
    assert proven.problems == ("no plan",) * proven.tried


def test_the_pass_reports_what_the_compiler_planned_and_never_raises() -> None:
    stages = start_stages(hlo.parse(text_of(PROTO)), order_lists=in_text_order)
    limits = Limits(0, 50_000)

    def broken(_: bytes) -> int:
        raise HlomemError("no compiler here")

    assert Transform("tpu", stages.options, RULES, limits, broken)(PROTO) is None
    answer = Transform("tpu", stages.options, RULES, limits, _size)(PROTO)
    assert answer is not None
    assert _size(answer) < _size(PROTO)
