"""A checker of orders: it knows nothing of how one was chosen.

All is worked out from the module: values by `hlomem.check.flow`, shared memory by the rules below,
not by the planner's. Instructions come after what they read and wait for; effects stay in order;
what hid something asynchronous still does; no value is read once the next one is written over it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlomem.check.flow import Flow, Index, Position, iter_running, trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule

Orders: TypeAlias = "Mapping[HloComputation, Sequence[HloInstruction]]"

_SEEN_OUTSIDE = """
    infeed outfeed recv recv-done rng rng-get-and-update-state send send-done
"""
_TOGETHER = """
    all-gather all-gather-start all-reduce all-reduce-start all-to-all collective-broadcast
    collective-permute collective-permute-start collective-reduce ragged-all-to-all reduce-scatter
"""
_IDLE = """
    add-dependency after-all bitcast constant domain get-tuple-element opt-barrier parameter
    partition-id replica-id tuple
"""
_OUTSIDE = frozenset(_SEEN_OUTSIDE.split())
COLLECTIVE = frozenset(_TOGETHER.split())
_TAKES_NO_TIME = frozenset(_IDLE.split())
_EFFECT = "custom_call_has_side_effect"
_DECLARED_EFFECT = f"{_EFFECT}=true"
_CALLS = ("calls=", "to_apply=")
_FIRST_OPERAND = frozenset({"dynamic-update-slice", "set-dimension-size"})
"""Opcodes whose result is written over their first operand."""
_WRITES_OVER = (*_FIRST_OPERAND, "scatter", "output_to_operand_aliasing")


class Allowed(NamedTuple):
    """The liberties of a change."""

    may_reorder_collectives: bool = False
    may_lose_overlap: bool = False
    host_color: int = 0
    """The memory space of the host, for what is moved there."""


STRICT = Allowed()


def find_order_problems(given: HloModule, after: HloModule, allowed: Allowed = STRICT) -> list[str]:
    """The problems of a module in other orders; what is new in it is left out."""
    return check_orders(given, _orders_in(given, after), allowed)


def find_effect_problems(
    given: HloModule, after: HloModule, allowed: Allowed = STRICT
) -> list[str]:
    """The same of a module whose instructions may read others: effects, and what hid transfers."""
    return _check_kept(_orders_in(given, after), allowed)


def _orders_in(given: HloModule, after: HloModule) -> Orders:
    """The orders that instructions of a module have in another."""
    orders = {}
    for computation in after.outer_computations:
        before = given.computation_by_name.get(computation.name)
        if before is not None:
            by_name = {one.name: one for one in before.instructions}
            names = [one.name for one in computation.instructions]
            orders[before] = [by_name[name] for name in names if name in by_name]
    return orders


def check_orders(module: HloModule, orders: Orders, allowed: Allowed = STRICT) -> list[str]:
    """The problems of orders, compared to those of the text."""
    problems = [
        problem
        for computation, order in orders.items()
        for problem in _check_sequence(computation, order)
    ]
    problems = problems or _check_kept(orders, allowed)
    return problems or list(_check_overwriting(module, orders))


def _check_kept(orders: Orders, allowed: Allowed) -> list[str]:
    """Effects stay in order, and what was hidden stays so."""
    problems: list[str] = []
    for computation, order in orders.items():
        old = computation.instructions
        problems += _check_effects(old, order, allowed.may_reorder_collectives)
        if not allowed.may_lose_overlap:
            problems += _check_overlap(old, order)
    return problems


def _check_sequence(computation: HloComputation, order: Sequence[HloInstruction]) -> Iterator[str]:
    """All instructions once, each after its operands and what it waits for."""
    place_of = {instruction: place for place, instruction in enumerate(order)}
    if len(place_of) != len(order) or place_of.keys() != set(computation.instructions):
        yield f"the order of {computation.name} does not list each of its instructions once"
        return
    for instruction, place in place_of.items():
        for operand in instruction.operands:
            if place_of[operand] >= place:
                yield f"{instruction.name} reads {operand.name}, which runs later"
        for earlier in instruction.control_predecessors:
            if place_of[earlier] >= place:
                yield f"{instruction.name} waits for {earlier.name}, which runs later"


# What others see.


def _check_effects(
    old: Sequence[HloInstruction], order: Sequence[HloInstruction], may_reorder_collectives: bool
) -> Iterator[str]:
    counted = _OUTSIDE if may_reorder_collectives else _OUTSIDE | COLLECTIVE
    known: dict[HloComputation, bool] = {}
    seen = [instruction for instruction in old if _is_seen(instruction, counted, known)]
    now = [instruction for instruction in order if _is_seen(instruction, counted, known)]
    for was, comes in zip(seen, now, strict=True):
        if was is not comes:
            yield f"{comes.name} takes effect where {was.name} did"
            return


def _is_seen(
    instruction: HloInstruction, counted: frozenset[str], known: dict[HloComputation, bool]
) -> bool:
    """Whether an instruction, or one that it runs, has effects outside the program."""
    if instruction.opcode in counted:
        return True
    if instruction.may_have(_EFFECT) and _DECLARED_EFFECT in instruction.attribute_text:
        return True
    for callee in instruction.called_computations:
        if callee not in known:
            known[callee] = _may_have(callee, *counted, _DECLARED_EFFECT, *_CALLS) and any(
                _is_seen(inside, counted, known) for inside in callee.instructions
            )
        if known[callee]:
            return True
    return False


def has_effect(instruction: HloInstruction, collectives: frozenset[str]) -> bool:
    """Whether an instruction, or one that it runs, is seen outside, or one of these."""
    return _is_seen(instruction, _OUTSIDE | collectives, {})


def _check_overlap(old: Sequence[HloInstruction], order: Sequence[HloInstruction]) -> Iterator[str]:
    """Whatever ran between the start and the end of something asynchronous still runs there."""
    place_of = {instruction: place for place, instruction in enumerate(order)}
    old_place_of = {instruction: place for place, instruction in enumerate(old)}
    for start, place in old_place_of.items():
        end = _end_of(start)
        if end is None:
            continue
        for between in old[place + 1 : old_place_of[end]]:
            hides = between.opcode not in _TAKES_NO_TIME and between in place_of
            if hides and not place_of[start] < place_of[between] < place_of[end]:
                yield f"{between.name} no longer runs between {start.name} and {end.name}"
                break


def _end_of(start: HloInstruction) -> HloInstruction | None:
    if not start.opcode.endswith("-start") and start.opcode not in ("send", "recv"):
        return None
    while True:
        users = [user for user in start.users if user.operands[0] is start]
        ends = [user for user in users if user.opcode.endswith("-done")]
        if ends:
            return ends[0]
        updates = [user for user in users if user.opcode == "async-update"]
        if not updates:
            return None
        start = updates[0]


# Who writes over whom.


def _check_overwriting(module: HloModule, orders: Orders) -> Iterator[str]:
    """Those who read a value come before the next value in the same memory is written."""
    flow = trace(module)
    given, now = run_times(module, {}), run_times(module, orders)
    for family in find_families(module, flow):
        written = sorted({given[name] for name, _ in family if name in given})
        name_at = {given[name]: name for name, _ in family if name in given}
        for value in family:
            for name in touching(flow, value):
                if name not in given:
                    continue
                following = bisect_right(written, given[name])
                if following < len(written):
                    writer = name_at[written[following]]
                    if now[name] > now[writer]:
                        yield f"{writer} writes over what {name} needs, which runs later"


def run_times(module: HloModule, orders: Orders) -> dict[str, int]:
    """The time at which each instruction runs, with the instructions it runs before it."""
    place_of = {
        instruction.name: place
        for computation in module.outer_computations
        for place, instruction in enumerate(orders.get(computation, computation.instructions))
    }
    running = iter_running(module.entry, place_of)
    return {instruction.name: time for time, instruction in enumerate(running)}


def touching(flow: Flow, value: Position) -> Iterator[str]:
    """The instructions that make, hand on or read a value."""
    yield value[0]
    for instruction, _ in flow.positions_of.get(value, ()):
        yield instruction.name
    for user, _, _ in flow.uses_of(value):
        yield user.name


def find_families(module: HloModule, flow: Flow) -> Iterable[set[Position]]:
    """Values that lie in the same memory, where there is more than one of them."""
    family_of: dict[Position, set[Position]] = {}
    for one, other in _joined(module, flow):
        first = family_of.setdefault(one, {one})
        second = family_of.setdefault(other, {other})
        if first is not second:
            small, large = sorted((first, second), key=len)
            large |= small
            family_of.update(dict.fromkeys(small, large))
    return {id(family): family for family in family_of.values()}.values()


def _joined(module: HloModule, flow: Flow) -> Iterator[tuple[Position, Position]]:
    """Pairs of values that must share memory."""
    parts_of = flow.parts_of
    for instruction in parts_of:
        if instruction.opcode == "while":
            body, condition = instruction.called_computations
            places = (instruction.operands[0], body.root, body.parameters[0])
            for place in (*places, condition.parameters[0]):
                yield from _alike(parts_of[place], parts_of[instruction])
        elif instruction.opcode == "conditional":
            for branch in instruction.called_computations:
                yield from _alike(parts_of[branch.root], parts_of[instruction])
        for output, number, inside in _written_over(instruction):
            operand = parts_of[instruction.operands[number]]
            if inside in operand and output in parts_of[instruction]:
                yield operand[inside], parts_of[instruction][output]
    root = parts_of[module.entry.root]
    for alias in module.input_output_alias:
        parameter = parts_of[module.entry.parameters[alias.parameter_number]]
        yield parameter[tuple(alias.parameter_index)], root[tuple(alias.output_index)]


def _alike(
    one: Mapping[Index, Position], other: Mapping[Index, Position]
) -> Iterator[tuple[Position, Position]]:
    return ((one[index], value) for index, value in other.items() if index in one)


def _written_over(instruction: HloInstruction) -> Iterator[tuple[Index, int, Index]]:
    """The operands an instruction writes over: the part of the result, and of which operand."""
    opcode = instruction.opcode
    for alias in instruction.output_to_operand_aliasing:
        yield tuple(alias.output_index), alias.operand_number, tuple(alias.operand_index)
    if opcode in _FIRST_OPERAND:
        yield (), 0, ()
    elif opcode == "ragged-all-to-all":
        yield (), 1, ()
    elif opcode in ("scatter", "all-reduce-start"):
        count = len(instruction.operands) // (2 if opcode == "scatter" else 1)
        for number in range(count):
            yield () if count == 1 else (number,), number, ()
    elif opcode == "fusion":
        yield from _written_inside(instruction.called_computations[0])


def _written_inside(body: HloComputation) -> Iterator[tuple[Index, int, Index]]:
    """The outputs of a fusion that are a parameter with a part of it replaced."""
    if not _may_have(body, *_WRITES_OVER):
        return
    root = body.root
    outputs: list[tuple[Index, HloInstruction]] = [((), root)]
    if root.opcode == "tuple":
        outputs = [((number,), output) for number, output in enumerate(root.operands)]
    for index, output in outputs:
        source = _behind_bitcasts(output)
        inside = [number for part, number, _ in _written_over(source) if not part]
        if inside:
            written = _behind_bitcasts(source.operands[inside[0]])
            if written.opcode == "parameter":
                yield index, written.parameter_number, ()


def _behind_bitcasts(instruction: HloInstruction) -> HloInstruction:
    while instruction.opcode == "bitcast":
        instruction = instruction.operands[0]
    return instruction


def _may_have(body: HloComputation, *words: str) -> bool:
    """Whether one of these stands in the text of a body, which need not be read for a no."""
    text = body.body_text
    return text is None or any(word in text for word in words)
