"""The pass in the hands of a compiler: whatever goes wrong leaves XLA's order, and says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hlomem.base.errors import HlomemError
from hlomem.hlo.barriers import without_barriers
from hlomem.hlo.ir import HloModule
from hlomem.hlo.text.parser import parse
from hlomem.hlo.text.printer import format_module
from hlomem.jax.pass_ import answer_search, answers, log
from hlomem.jax.pass_.limits import Limits
from hlomem.jax.pass_.register import compiler_options
from hlomem.jax.pass_.transform import Transform
from hlomem.machines.budget import MemoryBudget
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.opt import search, strategies
from hlomem.opt.candidate import Candidate, start_text
from hlomem.opt.constants import AFTER_HOOK, AIM_SHARE
from hlomem.opt.goal import Rules
from hlomem.opt.orders.cost import module_time
from hlomem.opt.orders.planned_orders import other_bytes, temporary_bytes
from hlomem.opt.orders.search import Improvement
from hlomem.opt.search import Compiler
from hlomem.opt.trials import Tried
from hlomem.pipeline import Stages, start_stages
from hlomem.proto.module import read_module
from tests.analysis.programs import DONATE_SWAP
from tests.opt.orders.programs import CPU
from tests.opt.remat.programs import MEBIBYTE, SHAPE, SIDE, WIDE, chain, gpu_chain, products

hlo: Any = pytest.importorskip("jaxlib._hlo", reason="jaxlib is not installed")
TEXT = (CPU / "g_cholesky_solve" / "module.hlo").read_text()


@pytest.fixture(autouse=True)
def _new_report() -> Iterator[None]:
    log.forget()
    yield
    log.forget()


def _proto(text: str = TEXT) -> bytes:
    return bytes(hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())


def _transform() -> Transform:
    return Transform("cpu", compiler_options("cpu"), Rules("low"), Limits(0, 50_000))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.99])
def test_a_proto_that_is_cut_off_leaves_the_order_and_is_reported(share: float) -> None:
    proto = _proto()
    assert _transform()(proto[: int(share * len(proto))]) is None
    [outcome] = log.report().outcomes
    assert outcome.kind == "failed"
    assert outcome.reason


def test_bytes_that_are_no_proto_leave_the_order_and_are_reported() -> None:
    assert _transform()(b"\xff" * 64) is None
    assert [outcome.kind for outcome in log.report().outcomes] == ["failed"]


def test_a_module_without_a_schedule_is_said_to_have_none() -> None:
    assert _transform()(_proto(TEXT.replace("is_scheduled=true, ", "", 1))) is None
    [outcome] = log.report().outcomes
    assert (outcome.kind, outcome.reason) == ("failed", "the module has no schedule")


def test_an_order_that_breaks_a_dependency_never_reaches_xla(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def backwards(stages: Any, *_: Any, **__: Any) -> Improvement:
        entry = stages.module.entry
        orders = {entry: stages.schedule.sequence(entry)[::-1]}
        return Improvement(orders, 100, 50, 0, "backwards", ())

    monkeypatch.setattr(strategies, "improve", backwards)
    assert _transform()(_proto()) is None
    [outcome] = log.report().outcomes
    assert outcome.kind == "kept"
    assert "found and rejected" in outcome.reason


def test_the_same_module_gets_the_same_answer_from_memory() -> None:
    transform, proto = _transform(), _proto()
    assert transform(proto) == transform(proto)
    assert len(set(log.report().outcomes)) == 1


@pytest.mark.parametrize(
    ("limits", "text", "kind", "reason"),
    [
        (Limits(1 << 40, 50_000), TEXT, "skipped", "small"),
        (Limits(0, 3), TEXT, "skipped", " instructions"),
        (
            Limits(0, 50_000, keeps_donations=False),
            DONATE_SWAP,
            "kept",
            "would lose that its arguments are donated",
        ),
    ],
    ids=["small", "large", "donated"],
)
def test_a_program_outside_the_limits_is_left_alone(
    limits: Limits, text: str, kind: str, reason: str
) -> None:
    transform = Transform("cpu", compiler_options("cpu"), Rules("low"), limits)
    assert transform(_proto(text)) is None
    [outcome] = log.report().outcomes
    assert outcome.kind == kind
    assert reason in outcome.reason


def _fitted(share: float) -> tuple[bytes | None, log.Outcome]:
    """What becomes of a chain that is to fit a share of what it needs."""
    text = chain(12)
    needs = start_stages(parse(text), compiler_options("cpu")).assignment.total_bytes
    limits = Limits(0, 50_000, MemoryBudget(int(share * needs)))
    answer = Transform("cpu", compiler_options("cpu"), Rules("low"), limits)(_proto(text))
    [outcome] = log.report().outcomes
    return answer, outcome


def test_values_are_computed_again_where_the_program_does_not_fit() -> None:
    answer, outcome = _fitted(0.6)
    assert answer is not None
    assert outcome.kind == "improved"
    assert outcome.clones
    assert outcome.limit is not None
    stages = start_stages(read_module(answer), compiler_options("cpu"))
    assert outcome.total == stages.assignment.total_bytes <= outcome.limit
    machine = stages.options.machine
    before = module_time(parse(chain(12)), machine)
    assert outcome.time_ratio == module_time(stages.module, machine) / before > 1
    assert f"modelled time {outcome.time_ratio - 1:+.1%}" in str(outcome)


FREELY = Rules("low", recompute=0.02)


def _freely(text: str, fit: int | None = None) -> tuple[bytes | None, log.Outcome]:
    """What becomes of a program of which a little may be recomputed."""
    limits = Limits(0, 50_000, MemoryBudget(fit))
    answer = Transform("cpu", compiler_options("cpu"), FREELY, limits)(_proto(text))
    [outcome] = log.report().outcomes
    return answer, outcome


def test_what_is_almost_free_is_computed_again_and_told() -> None:
    answer, outcome = _freely(products(4))
    assert answer is not None
    assert (outcome.kind, outcome.clones) == ("improved", 1)
    assert outcome.after < outcome.ordered <= outcome.before
    assert 0 < outcome.flops <= 0.02 * outcome.program_flops
    assert 1 < outcome.time_ratio <= 1.02
    assert "1 instructions recomputed" in str(outcome)
    stages = start_stages(read_module(answer), compiler_options("cpu"))
    assert temporary_bytes(stages) == outcome.after


def test_what_is_refused_freely_is_recomputed_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    accepted = search.find_accepted

    def refuse(start: Candidate, *rest: Any) -> tuple[Candidate | None, list[str]]:
        is_exact = start.given.rules.exact
        return accepted(start, *rest) if is_exact else (None, ["rejected: it is wrong"])

    monkeypatch.setattr(answer_search, "find_accepted", refuse)
    rules, limits = FREELY._replace(exact=False), Limits(0, 50_000, MemoryBudget(1 << 40))
    assert Transform("cpu", compiler_options("cpu"), rules, limits)(_proto(products(4))) is not None
    [outcome] = log.report().outcomes
    assert (outcome.kind, outcome.clones) == ("improved", 1)


BARRED = (
    products(4)
    .replace("tanh(%p)", "tanh(%b)")
    .replace(f"  %t = {SHAPE}", f"  %b = {SHAPE} opt-barrier(%p)\n  %t = {SHAPE}")
)


def _barred_behind() -> HloModule:
    """A value that waits behind a barrier, with another that is read late."""
    text = f"""HloModule m, is_scheduled=true

ENTRY %main (p: f32[{SIDE},{SIDE}]) -> f32[{SIDE},{SIDE}] {{
  %p = {SHAPE} parameter(0)
  %a = {SHAPE} tanh(%p)
  %b = {SHAPE} sine(%p)
  %t = ({SHAPE}, {SHAPE}) tuple(%a, %b)
  %o = ({SHAPE}, {SHAPE}) opt-barrier(%t)
  %x = {SHAPE} get-tuple-element(%o), index=0
  %y = {SHAPE} get-tuple-element(%o), index=1
  %c = {SHAPE} cosine(%x)
  %d = {SHAPE} multiply(%c, %x)
  ROOT %r = {SHAPE} add(%d, %y)
}}
"""
    return parse(text)


@pytest.mark.parametrize("version", [(0, 11, 2), (0, 12, 0, 1)])
def test_a_gpus_forecast_is_of_the_program_with_barriers_before_jaxlib_0_12(
    version: tuple[int, ...],
) -> None:
    module = _barred_behind()
    options = options_for(find_machine("gpu", "h200"), Release("jaxlib", version))
    plain = temporary_bytes(start_text(without_barriers(module), options))
    barred = temporary_bytes(start_text(module, options))
    assert barred != plain
    log.forget()
    Transform("cuda", options, Rules("low"), Limits(0, 50_000))(_proto(format_module(module)))
    [outcome] = log.report().outcomes
    assert outcome.before == (barred if version < (0, 12) else plain)


def test_the_forecast_is_of_the_program_without_its_barriers() -> None:
    answer, outcome = _freely(BARRED)
    assert answer is not None
    bare = without_barriers(read_module(answer))
    assert outcome.clones
    assert outcome.after == temporary_bytes(start_stages(bare, compiler_options("cpu")))


def test_what_goes_wrong_while_computing_again_leaves_the_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no way")

    monkeypatch.setattr(strategies, "find_cheap", fail)
    _, outcome = _freely(products(4))
    assert outcome.kind in ("improved", "kept")
    assert outcome.after == outcome.ordered
    assert not outcome.clones
    assert outcome.reason.endswith("nothing was recomputed: RuntimeError: no way")


def test_values_that_a_judge_objects_to_never_reach_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "temporary_bytes", lambda _: -1)
    answer, outcome = _freely(products(4))
    assert answer is None or b"remat" not in answer
    assert not outcome.clones
    assert "rejected: it is planned in -1 bytes, not " in outcome.reason


def test_a_program_that_fits_may_still_need_less() -> None:
    _, outcome = _freely(products(4), fit=1 << 40)
    assert outcome.clones == 1
    assert outcome.limit == 1 << 40
    assert 0 < outcome.total < outcome.limit


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.4, 0.5, 0.7])
@pytest.mark.parametrize("text", [products(4), chain(12)])
def test_checkers_are_asked_about_one_program_whether_it_fits_or_not(
    monkeypatch: pytest.MonkeyPatch, text: str, share: float
) -> None:
    asked: list[int] = []
    write = search.write

    def count(candidate: Candidate, compiler: Compiler) -> tuple[Candidate, list[str]]:
        asked.append(candidate.temporaries)
        return write(candidate, compiler)

    monkeypatch.setattr(search, "write", count)
    stages = start_stages(parse(text), compiler_options("cpu"))
    _, plain = _freely(text)
    assert asked in ([], [plain.after])
    log.forget()
    asked.clear()
    _, outcome = _freely(text, other_bytes(stages) + int(share * temporary_bytes(stages)))
    assert asked in ([], [outcome.after])
    assert not outcome.missing or outcome.after <= plain.after


def test_nothing_is_computed_again_where_it_fits() -> None:
    answer, outcome = _fitted(2.0)
    assert answer is None
    assert outcome.limit is not None
    assert 0 < outcome.total <= outcome.limit
    assert not outcome.clones


def test_a_number_below_what_one_instruction_needs_is_said_to_be_out_of_reach() -> None:
    transform = Transform(
        "cpu", compiler_options("cpu"), Rules("low"), Limits(0, 50_000, MemoryBudget(40_000))
    )
    transform(_proto(WIDE))
    [outcome] = log.report().outcomes
    assert outcome.hungriest == "wide"
    assert outcome.floor == outcome.total
    assert "recomputation cannot go below" in str(outcome)
    assert "for wide alone" in str(outcome)


# A compiler that is asked.


def _compiler(stages: Stages) -> Callable[[bytes], int]:
    """A compiler that needs what hlomem plans."""
    return lambda proto: temporary_bytes(start_text(read_module(proto), stages.options))


@pytest.mark.parametrize("offload", [True, False])
def test_the_pass_moves_what_cannot_be_computed_again(offload: bool) -> None:
    stages = gpu_chain(is_opaque=True)
    before = temporary_bytes(stages)
    limit = stages.assignment.total_bytes - before + round(0.6 * before)
    limits = Limits(1, 1000, MemoryBudget(limit), max_slowdown=1000, offload=offload)
    log.forget()
    answer = Transform("cuda", stages.options, Rules(), limits, _compiler(stages))(
        _proto(format_module(stages.module))
    )
    [outcome] = log.report().outcomes
    assert bool(outcome.moves) == offload
    assert bool(outcome.missing) != offload
    assert ("offloaded to the host" in str(outcome)) == offload
    if answer is not None:
        assert outcome.after == _compiler(stages)(answer)
        assert (outcome.total <= limit) == offload


_SMALL_WAITS = """HloModule m, is_scheduled=true

ENTRY %main (p: f32[262144]) -> f32[16] {
  %p = f32[262144]{0} parameter(0)
  %s = f32[4096]{0} custom-call(%p), custom_call_target="f"
  %a = f32[262144]{0} custom-call(%p, %s), custom_call_target="f"
  %b = f32[262144]{0} custom-call(%a), custom_call_target="f"
  %c = f32[16]{0} custom-call(%b), custom_call_target="f"
  %d = f32[16]{0} custom-call(%c), custom_call_target="f"
  ROOT %r = f32[16]{0} custom-call(%d, %s), custom_call_target="f"
}
"""


@pytest.mark.parametrize("missing", [8 << 10, 1 << 20])
def test_the_pass_moves_nothing_small_where_that_does_not_lead_to_a_fit(missing: int) -> None:
    options = gpu_chain().options
    given = start_text(parse(_SMALL_WAITS), options)
    limits = Limits(
        1, 1000, MemoryBudget(given.assignment.total_bytes - missing), max_slowdown=1000
    )
    log.forget()
    Transform("cuda", options, Rules(), limits)(_proto(_SMALL_WAITS))
    [outcome] = log.report().outcomes
    is_enough = missing < 4 * 4096
    assert bool(outcome.moves) == is_enough
    assert bool(outcome.missing) != is_enough
    assert is_enough or "values on the host tried" in outcome.reason


def _fit_on_a_gpu(stages: Stages, room: int, most: float | None = None) -> log.Outcome:
    """What becomes of a program whose temporaries may take so many bytes."""
    limits = Limits(1, 1000, MemoryBudget(other_bytes(stages) + room), most, offload=False)
    log.forget()
    Transform("cuda", stages.options, Rules(), limits)(_proto(format_module(stages.module)))
    [outcome] = log.report().outcomes
    return outcome


LONG = 120
"""Values of a chain of which each is a hundredth of the temporaries, and less of the time."""


def test_a_gpu_is_asked_for_a_little_less_than_the_number_where_that_is_cheap() -> None:
    stages = gpu_chain(LONG)
    before = temporary_bytes(stages)
    room = round(0.8 * before)
    outcome = _fit_on_a_gpu(stages, room)
    assert outcome.after <= room - AIM_SHARE * before
    assert outcome.after > room - 4 * AIM_SHARE * before


@pytest.mark.parametrize("most", [None, 1.2])
def test_what_fits_the_number_alone_is_handed_on_where_less_would_be_dear(
    most: float | None,
) -> None:
    stages = gpu_chain()
    outcome = _fit_on_a_gpu(stages, 7 * MEBIBYTE + AFTER_HOOK, most)
    assert outcome.after == 7 * MEBIBYTE
    assert not outcome.missing


@pytest.mark.parametrize("is_opaque", [True, False])
def test_what_takes_too_long_is_refused_and_told(is_opaque: bool) -> None:
    stages = gpu_chain(is_opaque=is_opaque)
    before = temporary_bytes(stages)
    limit = stages.assignment.total_bytes - before + round(0.6 * before)
    log.forget()
    transform = Transform(
        "cuda", stages.options, Rules(), Limits(1, 1000, MemoryBudget(limit), max_slowdown=1)
    )
    transform(_proto(format_module(stages.module)))
    [outcome] = log.report().outcomes
    assert outcome.missing
    assert outcome.time_ratio <= 1
    if is_opaque:
        assert "with values on the host it would take" in outcome.reason
    else:
        assert outcome.slower[-1][0] < outcome.total
        assert all(ratio > 1 for _, ratio in outcome.slower)
        assert "more than max_slowdown allows" in str(outcome)


def test_moves_of_an_order_that_checkers_reject_are_those_of_xlas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stages = gpu_chain(is_opaque=True, is_early=True)
    before = temporary_bytes(stages)
    limit = stages.assignment.total_bytes - before + round(0.6 * before)
    limits = Limits(1, 1000, MemoryBudget(limit), max_slowdown=1000)
    make = Transform("cuda", stages.options, Rules(), limits, _compiler(stages))
    assert make(_proto(format_module(stages.module))) is not None
    assert log.report().outcomes[-1].ordered < before
    monkeypatch.setattr(answers, "find_order_problems", lambda _: ["it is wrong"])
    nothing = Tried(None, before, before, 0)
    monkeypatch.setattr(answer_search, "try_fits", lambda *_: nothing)
    make = Transform("cuda", stages.options, Rules(), limits, _compiler(stages))
    answer = make(_proto(format_module(stages.module)))
    assert answer is not None
    outcome = log.report().outcomes[-1]
    assert outcome.moves
    assert outcome.ordered == before
    assert outcome.total <= limit
    assert "an order was found and rejected: it is wrong" in outcome.reason
    kept = [one.name for one in read_module(answer).entry.instructions]
    given = [one.name for one in stages.module.entry.instructions]
    assert [name for name in kept if name in given] == given


CHAIN = chain(12)
GIVEN = start_text(parse(CHAIN), compiler_options("cpu"))
NEEDED, ROOM = GIVEN.assignment.total_bytes, temporary_bytes(GIVEN)


@pytest.mark.parametrize(
    ("share", "kind", "says"), [(0.6, "improved", "programs tried"), (2.0, "kept", "")]
)
def test_the_pass_reports_what_the_compiler_planned(share: float, kind: str, says: str) -> None:
    log.forget()
    limits = Limits(0, 50_000, MemoryBudget(NEEDED - ROOM + int(share * ROOM)))
    asked = _compiler(GIVEN)
    make = Transform("tpu", GIVEN.options, Rules("low"), limits, asked, foresees_orders=True)
    answer = make(_proto(CHAIN))
    [outcome] = log.report().outcomes
    assert (outcome.kind, outcome.limit) == (kind, limits.budget.size)
    assert says in outcome.reason
    if answer is None:
        assert outcome.total == NEEDED
    else:
        stages = start_text(read_module(answer), GIVEN.options)
        assert outcome.total == stages.assignment.total_bytes


def test_the_pass_keeps_a_program_that_no_compiler_plans() -> None:
    def broken(_: bytes) -> int:
        raise HlomemError("no compiler here")

    log.forget()
    limits = Limits(0, 50_000, MemoryBudget(NEEDED - ROOM // 2))
    make = Transform("tpu", GIVEN.options, Rules("low"), limits, broken, foresees_orders=True)
    assert make(_proto(CHAIN)) is None
    [outcome] = log.report().outcomes
    assert "no compiler here" in outcome.reason
    assert outcome.missing == ROOM // 2


def test_orders_are_tried_where_they_cannot_be_foreseen_and_nothing_is_raised() -> None:
    options = compiler_options("cpu")
    stages = start_text(parse(TEXT), options)

    def broken(_: bytes) -> int:
        raise HlomemError("no compiler here")

    proto, limits = _proto(), Limits(0, 50_000)
    assert Transform("tpu", options, Rules("low"), limits, broken)(proto) is None
    answer = Transform("tpu", options, Rules("low"), limits, _compiler(stages))(proto)
    assert answer is not None
    assert _compiler(stages)(answer) < temporary_bytes(stages)
