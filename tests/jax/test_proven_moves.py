"""Values in the host's memory as a compiler plans them: tried, judged, and left out where not."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from hlomem import hlo
from hlomem.base.errors import HlomemError
from hlomem.hlo.text.printer import format_module
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.opt.order_search import Rules
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.pipeline import in_text_order, start_stages
from tests.opt.remat.programs import HOST, MEBIBYTE, gpu_chain

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.pipeline import Stages

pytest.importorskip("jaxlib")
from hlomem.jax import transform
from hlomem.jax.log import forget, report
from hlomem.jax.module_proto import text_of
from hlomem.jax.proven_moves import prove_moves
from hlomem.jax.transform import Limits, Transform

STAGES = gpu_chain()
BEFORE = temporary_bytes(STAGES)


def proto_of_chain(stages: Stages = STAGES) -> bytes:
    parsed = import_module("jaxlib._hlo").hlo_module_from_text(format_module(stages.module))
    return bytes(parsed.as_serialized_hlo_module_proto())


def compiler(factor: float = 1.0) -> Callable[[bytes], int]:
    """A compiler that needs so many times what hlomem plans."""

    def plan(proto: bytes) -> int:
        module = hlo.parse(text_of(proto))
        stages = start_stages(module, STAGES.options, order_lists=in_text_order)
        return round(factor * temporary_bytes(stages))

    return plan


@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_a_program_fits_as_its_compiler_plans_it(factor: float) -> None:
    room = round(0.5 * factor * BEFORE)
    found = prove_moves(
        proto_of_chain(), STAGES.options, room, Rules(), compiler(factor), round(factor * BEFORE)
    )
    assert found.answer is not None
    assert found.temporaries == compiler(factor)(found.answer) <= room
    planned = start_stages(
        hlo.parse(text_of(found.answer)), STAGES.options, order_lists=in_text_order
    )
    assert 0 < temporary_bytes(planned, HOST) <= sum(move.size for move in found.moves)


def test_more_is_moved_where_a_compiler_needs_more_than_was_foreseen() -> None:
    room = round(0.6 * BEFORE)
    easy = prove_moves(proto_of_chain(), STAGES.options, room, Rules(), compiler(), BEFORE)
    hard = prove_moves(proto_of_chain(), STAGES.options, room, Rules(), compiler(1.4), BEFORE)
    assert easy.tried == 1 < hard.tried
    assert len(easy.moves) < len(hard.moves)
    assert hard.temporaries <= room


def test_a_compiler_that_fails_leaves_the_program() -> None:
    def plan(_: bytes) -> int:
        raise HlomemError("out of luck\nand more")

    found = prove_moves(proto_of_chain(), STAGES.options, MEBIBYTE, Rules(), plan, BEFORE)
    assert found.answer is None
    assert found.temporaries == BEFORE
    assert found.problems == ("out of luck",)


def test_a_plan_that_is_no_smaller_is_not_taken() -> None:
    found = prove_moves(
        proto_of_chain(), STAGES.options, BEFORE // 2, Rules(), lambda _: BEFORE, BEFORE
    )
    assert found.answer is None
    assert not found.moves


def test_a_cpu_has_no_other_memory() -> None:
    options = options_for(find_machine("cpu", ""), Release("jaxlib", (0, 11, 2)))
    found = prove_moves(proto_of_chain(), options, MEBIBYTE, Rules(), compiler(), BEFORE)
    assert found.answer is None
    assert not found.tried


@pytest.mark.parametrize("offload", [True, False])
def test_the_pass_moves_what_cannot_be_computed_again(offload: bool) -> None:
    stages = gpu_chain(is_opaque=True)
    before = temporary_bytes(stages)
    limit = stages.assignment.total_bytes - before + round(0.6 * before)
    limits = Limits(1, 1000, limit, offload)
    forget()
    answer = Transform("cuda", stages.options, Rules(), limits, compiler())(proto_of_chain(stages))
    [outcome] = report().outcomes
    assert (answer is None) != offload
    assert bool(outcome.moves) == offload
    assert bool(outcome.missing) != offload
    assert ("kept by the host meanwhile" in str(outcome)) == offload
    if answer is not None:
        assert outcome.after == compiler()(answer)
        assert outcome.total <= limit


def test_moves_of_an_order_that_judges_refuse_are_those_of_xlas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stages = gpu_chain(is_opaque=True, is_early=True)
    before = temporary_bytes(stages)
    limit = stages.assignment.total_bytes - before + round(0.6 * before)
    make = Transform("cuda", stages.options, Rules(), Limits(1, 1000, limit), compiler())
    assert make(proto_of_chain(stages)) is not None
    assert report().outcomes[-1].ordered < before
    monkeypatch.setattr(transform, "find_objections", lambda *_: ["it is wrong"])
    make = Transform("cuda", stages.options, Rules(), Limits(1, 1000, limit), compiler())
    answer = make(proto_of_chain(stages))
    assert answer is not None
    outcome = report().outcomes[-1]
    assert outcome.moves
    assert outcome.ordered == before
    assert outcome.total <= limit
    assert "an order was found and rejected: it is wrong" in outcome.reason
    kept = [one.name for one in hlo.parse(text_of(answer)).entry.instructions]
    given = [one.name for one in stages.module.entry.instructions]
    assert [name for name in kept if name in given] == given
