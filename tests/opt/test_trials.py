"""Programs that are chosen by what a compiler says of them, which need not be foreseen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hlomem import hlo
from hlomem.base.errors import HlomemError, UnsupportedError
from hlomem.hlo.text.printer import format_module
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.opt import trials
from hlomem.opt.candidate import Program, start_text
from hlomem.opt.goal import MAX_CHEAP, MAX_FITS, MAX_ORDERS, Rules
from hlomem.opt.orders.planned_orders import other_bytes, temporary_bytes
from hlomem.opt.search import OURS, Compiler, find_order
from hlomem.opt.trials import Tried, try_cheap, try_fits, try_offloads, try_orders
from hlomem.pipeline import Stages, in_text_order, start_stages
from tests.opt.orders.programs import CPU
from tests.opt.remat.programs import HOST, MEBIBYTE, chain, gpu_chain, products

SOLVE = (CPU / "g_cholesky_solve" / "module.hlo").read_text(encoding="utf-8")
VALUE = 4096 * 4
"""Bytes of each value of a chain."""


def _program(text: str, rules: Rules, like: Stages | None = None) -> Program:
    module = hlo.parse(text)
    stages = (
        start_stages(module, order_lists=in_text_order)
        if like is None
        else start_text(module, like.options)
    )
    return Program(stages, rules, text.encode())


def _size(data: bytes, like: Stages | None = None) -> int:
    return temporary_bytes(_program(data.decode(), Rules(), like).stages)


def _asking(plan: Callable[[bytes], int]) -> Compiler:
    return OURS._replace(plan=plan)


def _with_tpu(text: str, rules: Rules) -> Program:
    options = options_for(find_machine("tpu", "v5e"), Release("jaxlib", (0, 11, 2)))
    return Program(start_text(hlo.parse(text), options), rules, text.encode())


# Orders.


def _try_orders(plan: Callable[[bytes], int]) -> Tried:
    return try_orders(find_order(_program(SOLVE, Rules("low"))), _asking(plan))


def test_the_smallest_plan_of_several_orders_wins() -> None:
    tried = _try_orders(_size)
    assert tried.before == _size(SOLVE.encode())
    assert tried.after < tried.before
    assert tried.best is not None
    assert tried.best.orders
    assert 0 < tried.tried <= MAX_ORDERS["low"]


def test_an_order_that_saves_no_more_than_chance_is_not_taken() -> None:
    tried = _try_orders(lambda data: 1000 if data == SOLVE.encode() else 985)
    assert tried.best is None
    assert tried.after == tried.before == 1000


def test_an_order_whose_plan_fails_is_not_taken() -> None:
    def fails(data: bytes) -> int:
        if data == SOLVE.encode():
            return 1000
        raise HlomemError("no plan\nlong story")

    tried = _try_orders(fails)
    assert tried.best is None
    assert tried.problems == ("no plan",) * tried.tried


def test_the_best_order_is_not_taken_where_a_checker_rejects_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trials, "find_order_problems", lambda _: ["it is wrong"])
    tried = _try_orders(_size)
    assert tried.best is None
    assert tried.after == tried.before
    assert tried.rejections == ("an order was found and rejected: it is wrong",)


# Recomputation.

CHAIN = chain(12)
NEEDED = _program(CHAIN, Rules()).start()
REST = other_bytes(NEEDED.plan)


def _try_fits(limit: int, plan: Callable[[bytes], int], effort: str = "low") -> Tried:
    start = find_order(_program(CHAIN, Rules(effort)))  # type: ignore[arg-type]
    return try_fits(start, limit, _asking(plan), plan(CHAIN.encode()))


def test_a_program_that_was_seen_to_fit_is_taken() -> None:
    limit = REST + int(0.6 * NEEDED.temporaries)
    tried = _try_fits(limit, _size)
    assert tried.best is not None
    assert tried.best.written is not None
    assert tried.after == tried.best.temporaries == _size(tried.best.written.data) <= limit - REST
    assert tried.best.total == REST + tried.after
    assert 0 < tried.tried <= MAX_FITS["low"]
    assert tried.problems == ()


def test_more_is_asked_for_where_the_compiler_needs_more_than_foreseen() -> None:
    limit = REST + int(0.8 * NEEDED.temporaries)
    once = _try_fits(limit, _size)

    def needs_more(data: bytes) -> int:
        return _size(data) + (0 if data == CHAIN.encode() else VALUE)

    tried = _try_fits(limit, needs_more, "default")
    assert once.best is not None
    assert tried.best is not None
    assert tried.after <= limit - REST
    assert tried.best.clones > once.best.clones


def test_a_program_that_cannot_be_planned_is_not_taken() -> None:
    def fails(data: bytes) -> int:
        if data == CHAIN.encode():
            return _size(data)
        raise HlomemError("no plan\nlong story")

    tried = _try_fits(REST + 3 * VALUE, fails)
    assert tried.best is None
    assert tried.problems == ("no plan",)


def test_a_program_that_checkers_reject_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "write", lambda made, _: (made, ["it is wrong"]))
    tried = _try_fits(REST + 3 * VALUE, _size)
    assert (tried.best, tried.tried) == (None, 0)
    assert tried.problems == ("recomputation was found and rejected: it is wrong",)


def _tried(plan: Callable[[int], int], share: float) -> tuple[Tried, int, int]:
    """The outcome for a compiler whose plans are a function of hlomem's, its room, its plans."""
    calls = 0

    def planned(data: bytes) -> int:
        nonlocal calls
        calls += 1
        return plan(_size(data))

    program = _program(chain(32), Rules())
    before = plan(temporary_bytes(program.stages))
    room = round(share * before)
    limit = other_bytes(program.stages) + room
    start = find_order(program, "low")
    return try_fits(start, limit, _asking(planned), before), room, calls


def _flops(tried: Tried) -> int:
    return 0 if tried.best is None else tried.best.flops


def test_less_is_computed_again_where_the_compiler_leaves_room() -> None:
    exact, _, _ = _tried(lambda size: size, 0.5)
    roomy, room, _ = _tried(lambda size: size if size > 400_000 else round(0.7 * size), 0.5)
    assert roomy.after <= room
    assert _flops(roomy) < _flops(exact)


def test_more_is_computed_again_where_the_compiler_needs_more() -> None:
    exact, _, _ = _tried(lambda size: size, 0.5)
    tight, room, _ = _tried(lambda size: size if size > 400_000 else round(1.2 * size), 0.5)
    assert tight.after <= room
    assert _flops(tight) >= _flops(exact)


def test_the_compiler_is_asked_a_few_times() -> None:
    tried, _, calls = _tried(lambda size: size, 0.3)
    assert tried.tried <= MAX_FITS["default"]
    assert calls >= tried.tried


def test_a_compiler_that_refuses_leaves_the_program() -> None:
    def refuse(size: int) -> int:
        if size < 300_000:
            module = hlo.parse(chain(2))
            raise UnsupportedError(module.source, module.source.first_line, "no", "")
        return size

    tried, _, _ = _tried(refuse, 0.5)
    assert tried.best is None
    assert tried.problems


def test_what_would_take_too_long_is_not_tried_and_told() -> None:
    program = _with_tpu(CHAIN, Rules())
    room = round(0.5 * temporary_bytes(program.stages))
    limit = other_bytes(program.stages) + room

    def size(data: bytes) -> int:
        return temporary_bytes(_with_tpu(data.decode(), Rules()).stages)

    start, before = program.start(), temporary_bytes(program.stages)
    free = try_fits(start, limit, _asking(size), before)
    assert free.best is not None
    assert free.slower == ()
    slow = try_fits(start, limit, _asking(size), before, free.best.slowdown - 0.01)
    assert slow.best is None or slow.best.slowdown < free.best.slowdown
    assert min(total for total, _ in slow.slower) <= limit


# The memory of the host.

GPU = gpu_chain()
BEFORE = temporary_bytes(GPU)


def _compiler(factor: float = 1.0) -> Callable[[bytes], int]:
    """A compiler that needs so many times what hlomem plans."""
    return lambda data: round(factor * _size(data, GPU))


def _offload(
    room: int, plan: Callable[[bytes], int], before: int = BEFORE, like: Stages = GPU
) -> Tried:
    start = _program(format_module(GPU.module), Rules(), like).start()
    return try_offloads(start, room, _asking(plan), before)


@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_a_program_fits_as_its_compiler_plans_it(factor: float) -> None:
    room = round(0.5 * factor * BEFORE)
    tried = _offload(room, _compiler(factor), round(factor * BEFORE))
    assert tried.best is not None
    assert tried.best.written is not None
    assert tried.after == _compiler(factor)(tried.best.written.data) <= room
    planned = start_text(tried.best.written.module, GPU.options)
    assert 0 < temporary_bytes(planned, HOST) <= sum(move.size for move in tried.best.moves)


def test_more_is_moved_where_a_compiler_needs_more_than_was_foreseen() -> None:
    room = round(0.6 * BEFORE)
    easy, hard = _offload(room, _compiler()), _offload(room, _compiler(1.4))
    assert easy.tried == 1 < hard.tried
    assert easy.best is not None
    assert hard.best is not None
    assert len(easy.best.moves) < len(hard.best.moves)
    assert hard.after <= room


def test_a_compiler_that_fails_leaves_the_values_where_they_are() -> None:
    def plan(_: bytes) -> int:
        raise HlomemError("out of luck\nand more")

    tried = _offload(MEBIBYTE, plan)
    assert tried.best is None
    assert tried.after == BEFORE
    assert tried.problems == ("out of luck",)


def test_a_plan_that_is_no_smaller_is_not_taken() -> None:
    assert _offload(BEFORE // 2, lambda _: BEFORE).best is None


def test_a_cpu_has_no_other_memory() -> None:
    options = options_for(find_machine("cpu", ""), Release("jaxlib", (0, 11, 2)))
    tried = _offload(MEBIBYTE, _compiler(), like=start_text(GPU.module, options))
    assert tried.best is None
    assert not tried.tried


# Values that are cheap.


def _try_cheap(plan: Callable[[bytes], int]) -> Tried:
    start = find_order(_program(products(4), Rules("low")))
    return try_cheap(start, 0.02, _asking(plan), _size(products(4).encode()))


def test_cheap_values_are_recomputed_where_the_compiler_needs_less() -> None:
    tried = _try_cheap(_size)
    assert tried.tried == 1
    assert tried.best is not None
    assert tried.best.clones
    assert tried.best.written is not None
    assert tried.after == _size(tried.best.written.data) < tried.before


TWO_KINDS = """HloModule m, is_scheduled=true

ENTRY %main (p: bf16[4096,4096], q: bf16[4096,128]) -> (bf16[4096,4096], bf16[4096,4096]) {
  %p = bf16[4096,4096]{1,0} parameter(0)
  %q = bf16[4096,128]{1,0} parameter(1)
  %wide = bf16[4096,4096]{1,0} dot(%q, %q), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  %low = bf16[1024,4096]{1,0} slice(%p), slice={[0:1024], [0:4096]}
  %a = bf16[4096,4096]{1,0} add(%p, %wide)
  %b = bf16[1024,4096]{1,0} dot(%low, %a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
MIDDLE
  %c = bf16[1024,4096]{1,0} add(%low, %LAST)
  %d = bf16[4096,4096]{1,0} multiply(%wide, %p)
  ROOT %r = (bf16[1024,4096]{1,0}, bf16[4096,4096]{1,0}) tuple(%c, %d)
}
"""
"""A large value that costs some operations and a small one that costs none, over long work."""


def _two_kinds() -> str:
    shape = "bf16[4096,4096]{1,0}"
    lines = [f"  %s0 = {shape} add(%p, %p)"]
    for number in range(1, 9):
        before = f"%s{number - 1}"
        dot = f"dot({before}, {before}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        lines.append(f"  %s{number} = {shape} {dot}")
    lines.append("  %t = bf16[1024,4096]{1,0} slice(%s8), slice={[0:1024], [0:4096]}")
    lines.append("  %u = bf16[1024,4096]{1,0} add(%t, %b)")
    return TWO_KINDS.replace("MIDDLE", "\n".join(lines)).replace("%LAST", "%u")


def test_what_is_cheap_on_a_tpu_keeps_to_both_shares_and_is_planned_once() -> None:
    rules = Rules(recompute=0.02)
    program = _with_tpu(_two_kinds(), rules)
    start = program.start()
    sizes: list[int] = []

    def size(data: bytes) -> int:
        sizes.append(temporary_bytes(_with_tpu(data.decode(), rules).stages))
        return sizes[-1]

    tried = try_cheap(start, 0.02, _asking(size), start.temporaries)
    assert len(set(sizes)) == len(sizes) == tried.tried <= MAX_CHEAP["default"]
    assert tried.best is not None
    assert tried.after == min(sizes) < start.temporaries
    assert tried.best.flops <= 0.02 * program.flops
    assert tried.best.slowdown <= 1.02


def test_cheap_values_stay_where_the_compiler_needs_as_much() -> None:
    before = _size(products(4).encode())
    tried = _try_cheap(lambda _: round(0.99 * before))
    assert (tried.best, tried.after) == (None, before)


def test_cheap_values_stay_where_no_plan_is_made() -> None:
    def fails(_: bytes) -> int:
        raise HlomemError("no plan")

    tried = _try_cheap(fails)
    assert tried.best is None
    assert tried.problems == ("no plan",)
