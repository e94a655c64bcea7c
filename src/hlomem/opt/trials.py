"""The loop where the compiler plans: candidates are planned by it until one fits, or none helps.

A TPU's compiler fills fast memory after the hook, a GPU's wraps instructions into fusions. Where
its plan misses, more is asked for, by as much as it missed, and where it leaves room, less.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, zip_longest
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem.base.errors import HlomemError
from hlomem.base.gc_pause import collector_off
from hlomem.opt import constants
from hlomem.opt.candidate import (
    Candidate,
    Program,
    Slowdown,
    Written,
    choose_cheapest,
    find_slowdowns,
    planned,
    start_text,
)
from hlomem.opt.constants import LEAST_SIZES, MAX_MOVED, MOVES_PER_NODE, SMALL_SHARE
from hlomem.opt.goal import (
    MAX_CHEAP,
    MAX_FITS,
    MAX_OFFLOADS,
    MAX_ORDERS,
    Offload,
    Rules,
    Share,
)
from hlomem.opt.orders.flow import Flow, FlowBuilder
from hlomem.opt.orders.local_search import MovesLeft, improve_order
from hlomem.opt.orders.model import peak_of
from hlomem.opt.orders.one_computation import iter_constructions
from hlomem.opt.orders.planned_orders import in_orders, needed_bytes, other_bytes
from hlomem.opt.search import (
    REJECTED,
    REJECTED_ORDER,
    find_fits,
    find_order,
    find_order_problems,
    write,
)
from hlomem.opt.strategies import propose

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.opt.search import Compiler


_REJECTED_MOVES = "offloading was found and rejected"


class Tried(NamedTuple):
    best: Candidate | None
    """None where the given program stays."""
    before: int
    """Bytes of temporaries that the compiler plans for the given program."""
    after: int
    """The same for what is taken."""
    tried: int
    problems: tuple[str, ...] = ()
    """Of the plans that failed."""
    rejections: tuple[str, ...] = ()
    """Of the best order by checkers; it is not taken then."""
    slower: tuple[Slowdown, ...] = ()
    """Programs that would take too long, by hlomem's own plans."""


def _plan_of(compiler: Compiler, data: bytes) -> int | str:
    """Bytes that the compiler plans, or what went wrong."""
    assert compiler.plan is not None
    try:
        return compiler.plan(data)
    except HlomemError as error:
        return str(error).partition("\n")[0]


def _plan_all(compiler: Compiler, modules: Sequence[bytes]) -> list[int | str]:
    """The same of several modules, some at a time."""
    with _pool() as pool:
        return list(pool.map(lambda data: _plan_of(compiler, data), modules))


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(constants.MAX_AT_ONCE, os.cpu_count() or 1))


def _with_size(candidate: Candidate, size: int) -> Candidate:
    rest = other_bytes(candidate.given.stages)
    return replace(candidate, temporaries=size, total=rest + size)


# Orders.


def try_orders(start: Candidate, compiler: Compiler, before: int | None = None) -> Tried:
    """Let the compiler plan the given order and several others; the best of them.

    `before` is what the compiler needs without the pass, if known: then anything less is taken.
    An error of the plan of the given order is raised.
    """
    given, plan = start.given, compiler.plan
    assert plan is not None
    least_saving = constants.LEAST_SAVING if before is None else 0.0
    orders = list(islice(iter_orders(start), MAX_ORDERS[given.rules.effort]))
    with _pool() as pool:
        first = pool.submit(plan, given.data) if before is None else None
        sizes = list(pool.map(lambda one: _plan_of(compiler, compiler.write(one)), orders))
        needed = first.result() if first is not None else before or 0
    problems = [size for size in sizes if isinstance(size, str)]
    known = [(size, place) for place, size in enumerate(sizes) if isinstance(size, int)]
    size, place = min(known, default=(needed, 0))
    if size >= needed or size > needed * (1 - least_saving):
        return Tried(None, needed, needed, len(orders), tuple(problems))
    best = orders[place]
    if rejected := find_order_problems(best):
        note = f"{REJECTED_ORDER}: {rejected[0]}"
        return Tried(None, needed, needed, len(orders), tuple(problems), (note,))
    return Tried(best, needed, size, len(orders), tuple(problems))


def _in_tried_order(candidate: Candidate, size: int, rules: Rules, compiler: Compiler) -> Candidate:
    """A written program in the order that the compiler was seen to need least for."""
    written = _written(candidate)
    stages = start_text(written.module, candidate.options)
    found = find_order(Program(stages, rules, written.data), "low")
    tried = try_orders(found, compiler, before=size)
    if tried.best is None:
        return candidate
    data = compiler.write(tried.best)
    again = replace(candidate, written=replace(written, data=data, module=compiler.read(data)))
    return _with_size(again, tried.after)


def _written(candidate: Candidate) -> Written:
    assert candidate.written is not None
    return candidate.written


# Recomputation.


def try_fits(
    start: Candidate, limit: int, compiler: Compiler, before: int, most: float = inf
) -> Tried:
    """The cheapest program that the compiler was seen to fit, else the smallest that is smaller.

    `most` is how many times as long as the given program it may take.
    """
    return _Fits(start, limit, compiler, most).run(before)


class _Fits:
    """Programs found for more and less, and what the compiler needs for them."""

    def __init__(self, start: Candidate, limit: int, compiler: Compiler, most: float) -> None:
        self._start = start
        self._most = most
        self._slow: list[Candidate] = []
        self._rules = start.given.rules
        self._compiler = compiler
        self._rest = other_bytes(start.given.stages)
        self._room = max(limit - self._rest, 1)
        self._problems: list[str] = []
        self._found: list[Candidate] = []
        self._aims: set[int] = set()
        self._tried: list[Candidate] = []
        self._sizes: dict[tuple[int, int], int] = {}
        """By operations and bytes of what was found: bytes by the compiler's plan."""

    def run(self, before: int) -> Tried:
        """Ask for less where a plan leaves room, for more where it misses; the cheapest fit."""
        fits, misses, others = 0.0, float("inf"), constants.MAX_OTHERS
        foreseen = needed_bytes(self._start.plan) - self._rest
        aim = self._room * foreseen / max(before, 1)
        for _ in range(MAX_FITS[self._rules.effort]):
            made = self._find(round(aim))
            if made is None:
                break
            if self._has_missed(made):
                misses = min(misses, aim)
                aim = _between(fits, misses, aim * constants.LEAST_RATIO)
                continue
            size = self._try(made)
            if size is None:
                break
            if size <= self._room:
                fits = max(fits, aim)
                if size >= constants.CLOSE * self._room or made.is_cheap:
                    break
            elif made.total - self._rest > aim:
                break  # nothing smaller was found
            elif others > 0 and self._others(round(aim)):
                others -= 1
                continue
            else:
                misses = min(misses, aim)
            ratio = self._room / max(size, 1)
            if ratio < 1:
                ratio = max(ratio * constants.MARGIN, constants.LEAST_RATIO)
            aim = _between(fits, misses, aim * ratio)
            if misses - fits < (1 - constants.MARGIN) * fits:
                break
        best = self._best(before)
        after = before if best is None else best.temporaries
        slower = find_slowdowns(self._slow, self._rest + after)
        return Tried(best, before, after, len(self._sizes), tuple(self._problems), slower=slower)

    def _find(self, aim: int) -> Candidate | None:
        """The cheapest program that needs no more than so much by hlomem's own plan, of all."""
        limit = self._rest + aim
        if aim not in self._aims:
            self._aims.add(aim)
            for one in find_fits(self._start, limit):
                (self._found if one.slowdown <= self._most else self._slow).append(one)
        return choose_cheapest(self._others(aim) or self._found, limit)

    def _others(self, aim: int) -> list[Candidate]:
        """Programs that were found for so much and have not been seen to miss."""
        limit = self._rest + aim
        return [one for one in self._found if one.total <= limit and not self._has_missed(one)]

    def _has_missed(self, made: Candidate) -> bool:
        """Whether the same, or as good as the same, was planned by the compiler and misses."""
        return any(
            size > self._room
            and flops == made.flops
            and made.temporaries >= constants.SAME * forecast
            for (flops, forecast), size in self._sizes.items()
        )

    def _try(self, made: Candidate) -> int | None:
        """Bytes by the compiler's plan; None where it has none, or a checker objects."""
        key = made.flops, made.temporaries
        if key in self._sizes:
            return self._sizes[key]
        made, rejected = write(made, self._compiler)
        if rejected:
            self._problems.append(f"{REJECTED}: {rejected[0]}")
            return None
        size = _plan_of(self._compiler, _written(made).data)
        if isinstance(size, str):
            self._problems.append(size)
            return None
        made = _with_size(made, size)
        if self._room < size <= constants.NEARLY * self._room:
            low = self._rules._replace(effort="low")
            made = _in_tried_order(made, size, low, self._compiler)
        self._sizes[key] = made.temporaries
        self._tried.append(made)
        return made.temporaries

    def _best(self, before: int) -> Candidate | None:
        """The cheapest that fits, else the smallest, in other orders where it is near."""
        fitting = [one for one in self._tried if one.temporaries <= self._room]
        if fitting:
            return min(fitting, key=lambda one: (one.price, one.temporaries))
        smaller = [one for one in self._tried if one.temporaries < before]
        best = min(smaller, key=lambda one: one.temporaries, default=None)
        if best is not None and best.temporaries <= constants.NEAR * self._room:
            best = _in_tried_order(best, best.temporaries, self._rules, self._compiler)
        return best


def _between(fits: float, misses: float, aim: float) -> float:
    """The bytes to ask for next: as a plan says, or the middle where that is known to be wrong."""
    if fits < aim < misses:
        return aim
    return (fits + misses) / 2


def try_cheap(start: Candidate, share: float, compiler: Compiler, before: int) -> Tried:
    """The smallest program with cheap values recomputed, if the compiler needs less for it."""
    problems: list[str] = []
    written: list[Candidate] = []
    wanted = _different(propose(start, Share(share, is_tried=True)))
    for proposed in wanted[: MAX_CHEAP[start.given.rules.effort]]:
        made, rejected = write(proposed, compiler)
        if rejected:
            problems.append(f"{REJECTED}: {rejected[0]}")
        else:
            written.append(made)
    sizes = _plan_all(compiler, [_written(made).data for made in written])
    problems += [size for size in sizes if isinstance(size, str)]
    least = before * (1 - constants.LEAST_SAVING)
    found = [
        _with_size(made, size)
        for made, size in zip(written, sizes, strict=True)
        if isinstance(size, int) and size < least
    ]
    best = min(found, key=lambda one: one.temporaries, default=None)
    after = before if best is None else best.temporaries
    return Tried(best, before, after, len(sizes), tuple(problems))


def _different(found: Iterable[Candidate]) -> list[Candidate]:
    """The smallest first, by hlomem's own plan, and no two that are as good as the same."""
    kept: list[Candidate] = []
    for one in sorted(found, key=lambda one: one.temporaries):
        if all(one.temporaries * constants.SAME > other.temporaries for other in kept):
            kept.append(one)
    return kept


# The memory of the host.


def try_offloads(start: Candidate, room: int, compiler: Compiler, before: int) -> Tried:
    """Move values until the temporaries fit; `before` is what the compiler needs without."""
    best: Candidate | None = None
    problems: list[str] = []
    tried: list[object] = []
    aim = round(start.temporaries * room / max(before, 1))
    for _ in range(MAX_OFFLOADS[start.given.rules.effort]):
        made = next(propose(start, Offload(aim)), start)
        if made.moves in tried:  # what was missing is less than a value
            aim = round(aim * constants.LEAST_STEP)
            made = next(propose(start, Offload(aim)), start)
        if not made.moves or made.moves in tried:
            break
        tried.append(made.moves)
        made, rejected = write(made, compiler)
        if rejected:
            problems.append(f"{_REJECTED_MOVES}: {rejected[0]}")
            break
        size = _plan_of(compiler, _written(made).data)
        if isinstance(size, str):
            problems.append(size)
            break
        if size < (before if best is None else best.temporaries):
            best = replace(made, temporaries=size)
        if size <= room:
            break
        aim = round(aim * room / size * constants.MARGIN)
    after = before if best is None else best.temporaries
    return Tried(best, before, after, len(tried), tuple(problems))


# Orders to try.


def iter_orders(start: Candidate) -> Iterator[Candidate]:
    """Orders to try of the given program, each once; that of `start` first, if it is another.

    A TPU's compiler fills fast memory once the order is fixed: of two orders that keep equally
    little alive one may need a third more. So they differ in how they are made, and in whether all
    values count or those too large for fast memory. Kinds take turns, ranked by hlomem's plan.
    """
    given = start.given
    builder = FlowBuilder(given.stages, may_reorder_collectives=given.rules.may_reorder_collectives)
    seen: set[tuple[object, ...]] = {()}
    with collector_off():
        kinds = [_made(given, builder, least) for least in LEAST_SIZES]
    if start.orders:
        kinds.insert(0, [replace(start, method="search")])
    for turn in zip_longest(*kinds):
        for made in turn:
            if made is not None:
                key = tuple((computation, *order) for computation, order in made.orders.items())
                if key not in seen:
                    seen.add(key)
                    yield made


def _made(given: Program, builder: FlowBuilder, least: int) -> list[Candidate]:
    """Candidates of one kind, the smallest plan first."""
    peaks: dict[HloComputation, int] = {}
    inner: dict[HloComputation, list[HloInstruction]] = {}
    made: list[Candidate] = []
    *callees, entry = builder.computations()
    for computation in callees:
        flow = _weighed(builder.build(computation, peaks), least)
        _, order = min(_orders_of(flow), key=lambda found: peak_of(flow, found[1]))
        peaks[computation] = peak_of(flow, order)
        inner |= _changed(flow, order)
    flow = _weighed(builder.build(entry, peaks), least)
    for name, order in _orders_of(flow):
        orders = inner | _changed(flow, order)
        plan = in_orders(given.stages, orders)
        made.append(replace(planned(given, plan), stages=None, orders=orders, method=name))
    return sorted(made, key=lambda one: one.temporaries)


def _weighed(flow: Flow, least: int) -> Flow:
    sizes = [size if size >= least else size // SMALL_SHARE for size in flow.sizes]
    return replace(flow, sizes=sizes)


def _orders_of(flow: Flow) -> list[tuple[str, list[int]]]:
    """Constructions, and the best of them and the given order with moves."""
    made = list(iter_constructions(flow))
    best = sorted(made, key=lambda found: peak_of(flow, found[1]))[:MAX_MOVED]
    for name, order in (made[0], *best):
        budget = MovesLeft(MOVES_PER_NODE * len(flow.nodes))
        made += [(f"{name}, moved", moved) for moved in improve_order(flow, order, budget)[-1:]]
    return made


def _changed(flow: Flow, order: list[int]) -> dict[HloComputation, list[HloInstruction]]:
    named = [flow.nodes[node] for node in order]
    return {} if named == flow.nodes else {flow.computation: named}
