"""The value in every part of every result, derived from the module alone.

A value is named by its definition, an instruction and an index of its result. Most instructions
define all of their result; those in `_FORWARDED` forward parts of operands:

    x = negate(p)              x{}
    t = (x, p) tuple(x, p)     t{} is new, t{0} is x{}, t{1} is p{}
    g = get-tuple-element(t)   g{} is x{}

Every carried part of a loop is assumed unchanged until its body returns something else; then loop,
condition and body each have their own version.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from hlomem.check.opcodes import BINDS_OPERANDS, READS_NOTHING, READS_TOP_LEVEL, RUNS_OTHERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.opcodes import Opcode

Index: TypeAlias = tuple[int, ...]
Position: TypeAlias = tuple[str, Index]
"""An instruction and an index of its result."""
Parts: TypeAlias = dict[Index, Position]
"""The definition of the value at each index of a result."""
PartsOf: TypeAlias = "dict[HloInstruction, Parts]"
FlowUse: TypeAlias = "tuple[HloInstruction, int, Index]"
"""A user, an operand number, and an index into the operand."""
Forwarded: TypeAlias = "Mapping[Opcode, Callable[[HloInstruction, PartsOf], Parts]]"


class Flow(Struct, eq=False, dict=True):
    parts_of: PartsOf
    callers: Mapping[HloComputation, list[HloInstruction]]
    _uses: dict[Position, Sequence[FlowUse]] = {}

    @cached_property
    def positions_of(self) -> dict[Position, list[tuple[HloInstruction, Index]]]:
        found: dict[Position, list[tuple[HloInstruction, Index]]] = {}
        for instruction, parts in self.parts_of.items():
            for index, value in parts.items():
                found.setdefault(value, []).append((instruction, index))
        return found

    @cached_property
    def called_twice(self) -> HloComputation | None:
        """A computation with two callers, whose parameters hold several values."""
        return next((callee for callee, sites in self.callers.items() if len(sites) > 1), None)

    def callers_of(self, instruction: HloInstruction) -> list[HloInstruction]:
        """The callers of an instruction's computation; empty for the entry."""
        return self.callers.get(instruction.parent, [])

    def uses_of(self, value: Position) -> Sequence[FlowUse]:
        """The uses of a value; forwarding counts only by a root (`HloValue::ComputeUses`)."""
        found = self._uses.get(value)
        if found is None:
            found = self._uses[value] = self._find_uses(self.positions_of.get(value, ()))
        return found

    def _find_uses(self, positions: Sequence[tuple[HloInstruction, Index]]) -> Sequence[FlowUse]:
        if len(positions) == 1 and not positions[0][1] and positions[0][0] not in self.roots:
            return self._whole_reads.get(positions[0][0], ())  # the usual case
        returned = {instruction for instruction, _ in positions if instruction in self.roots}
        uses: list[FlowUse] = []
        for instruction, index in positions:
            takers = self._takers.get(instruction, ())
            uses += [(user, number, index) for user, number in takers if _may_read(user, index)]
            uses += [
                (user, number, index)
                for user, number in (takers if returned else ())
                if user in returned and not _may_read(user, index)
            ]
        return uses

    @cached_property
    def roots(self) -> set[HloInstruction]:
        return {parent.root for parent in {instruction.parent for instruction in self.parts_of}}

    @cached_property
    def _takers(self) -> dict[HloInstruction, list[tuple[HloInstruction, int]]]:
        found: dict[HloInstruction, list[tuple[HloInstruction, int]]] = {}
        for user in self.parts_of:
            for number, operand in enumerate(user.operands):
                found.setdefault(operand, []).append((user, number))
        return found

    @cached_property
    def _whole_reads(self) -> dict[HloInstruction, list[FlowUse]]:
        return {
            instruction: [
                (user, number, ()) for user, number in takers if user.opcode not in READS_NOTHING
            ]
            for instruction, takers in self._takers.items()
        }


def _may_read(user: HloInstruction, index: Index) -> bool:
    """Whether a user reads the part of an operand at an index, not just forwards it."""
    if user.opcode in READS_TOP_LEVEL:
        return not index
    return user.opcode not in READS_NOTHING


def trace(
    module: HloModule, *, is_old: bool = False, kept: Callable[[Position], bool] | None = None
) -> Flow:
    """The values of a module, as XLA since August 2026 defines them, or earlier.

    `kept` selects redundant phis that XLA fails to remove, for values that a loop's body returns
    unchanged.
    """
    forwarded = _UNTIL_2026_08 if is_old else _FORWARDED
    order = list(iter_running(module.entry))
    callers: dict[HloComputation, list[HloInstruction]] = {}
    for instruction in order:
        for callee in _run_by(instruction):
            callers.setdefault(callee, []).append(instruction)
    versions: set[Position] = set(filter(kept, _carried(order))) if kept else set()
    while True:
        parts_of: PartsOf = {}
        for instruction in order:
            parts_of[instruction] = _parts(instruction, parts_of, callers, versions, forwarded)
        changed = set(_changed_by_loops(order, parts_of)) - versions
        if not changed:
            return Flow(parts_of, callers)
        versions |= changed


def iter_running(
    entry: HloComputation, time_of: Mapping[str, int] | None = None
) -> Iterator[HloInstruction]:
    """Every scheduled instruction, callees first (`HloLiveRange::FlattenSchedule`)."""
    seen = {entry}
    pending = [_in_order(entry, time_of)]
    waiting: list[HloInstruction] = []
    while pending:
        instruction = next(pending[-1], None)
        if instruction is None:
            pending.pop()
            if waiting:
                yield waiting.pop()
            continue
        new = [callee for callee in _run_by(instruction) if callee not in seen]
        if not new:
            yield instruction
            continue
        seen.update(new)
        waiting.append(instruction)
        pending.append(chain.from_iterable([_in_order(callee, time_of) for callee in new]))


def _in_order(
    computation: HloComputation, time_of: Mapping[str, int] | None
) -> Iterator[HloInstruction]:
    if time_of is None:
        return iter(computation.instructions)
    timed = [instruction for instruction in computation.instructions if instruction.name in time_of]
    return iter(sorted(timed, key=lambda instruction: time_of[instruction.name]))


def _run_by(instruction: HloInstruction) -> tuple[HloComputation, ...]:
    """The computations that an instruction runs; a loop's condition first."""
    opcode = instruction.opcode
    if opcode not in RUNS_OTHERS:
        return ()
    if opcode in BINDS_OPERANDS:
        wrapped = instruction.async_wrapped_computation
        return (wrapped,) if wrapped is not None and _completes(instruction, wrapped) else ()
    called = instruction.called_computations
    return called[::-1] if opcode == "while" else called


def _completes(instruction: HloInstruction, wrapped: HloComputation) -> bool:
    """Whether this instruction binds the last operands of an asynchronous chain."""
    count, wanted = len(bound_operands(instruction)), len(wrapped.parameters)
    own = len(instruction.operands) - (instruction.opcode == "async-update")
    return count == wanted and (own > 0 or instruction.opcode == "async-start")


def bound_operands(instruction: HloInstruction) -> list[HloInstruction]:
    """The operands of an asynchronous chain so far; updates may add more."""
    links = []
    while instruction.opcode == "async-update":
        links.append(instruction.operands[1:])
        instruction = instruction.operands[0]
    return [*instruction.operands, *chain.from_iterable(reversed(links))]


def _parts(
    instruction: HloInstruction,
    parts_of: PartsOf,
    callers: Mapping[HloComputation, list[HloInstruction]],
    versions: set[Position],
    forwarded: Forwarded,
) -> Parts:
    opcode, name = instruction.opcode, instruction.name
    parts: Parts = {
        tuple(index): (name, tuple(index)) for index, _ in instruction.shape.subshapes()
    }
    source: Parts = {}
    if opcode == "parameter":
        source = _argument(instruction, parts_of, callers)
    elif opcode == "while":
        source = parts_of[instruction.operands[0]]
    elif opcode == "conditional":
        source = _same_in_all([parts_of[branch.root] for branch in instruction.called_computations])
    elif opcode == "call":
        source = parts_of[instruction.called_computations[0].root]
    elif opcode in forwarded:
        source = forwarded[opcode](instruction, parts_of)
    for index in parts if source else ():
        if index in source and (name, index) not in versions:
            parts[index] = source[index]
    return parts


def _argument(
    parameter: HloInstruction,
    parts_of: PartsOf,
    callers: Mapping[HloComputation, list[HloInstruction]],
) -> Parts:
    """The argument of a parameter; empty for the program's own parameters."""
    if parameter.parent not in callers:
        return {}
    caller = callers[parameter.parent][0]
    number = parameter.parameter_number
    if caller.opcode == "conditional":
        number = 1 + caller.called_computations.index(parameter.parent)
    operands = bound_operands(caller) if caller.opcode == "async-update" else caller.operands
    return parts_of[operands[number]]


def _same_in_all(branches: list[Parts]) -> Parts:
    first, *others = branches
    return {
        index: value
        for index, value in first.items()
        if all(other.get(index) == value for other in others)
    }


def _carried(order: list[HloInstruction]) -> Iterator[Position]:
    """Every carried part of every loop, at the three instructions that may have a version."""
    for loop in order:
        if loop.opcode == "while":
            body, condition = loop.called_computations
            for carrier in (loop, body.parameters[0], condition.parameters[0]):
                for index, _ in carrier.shape.subshapes():
                    yield carrier.name, tuple(index)


def _changed_by_loops(order: list[HloInstruction], parts_of: PartsOf) -> Iterator[Position]:
    """The parts that loop bodies change, at the three instructions that get a version."""
    for loop in order:
        if loop.opcode == "while":
            body, condition = loop.called_computations
            returned = parts_of[body.root]
            for index, value in parts_of[body.parameters[0]].items():
                if returned.get(index) != value:
                    for carrier in (loop, body.parameters[0], condition.parameters[0]):
                        yield carrier.name, index


def _whole(instruction: HloInstruction, parts_of: PartsOf) -> Parts:
    return parts_of[instruction.operands[0]]


def _elements(instruction: HloInstruction, parts_of: PartsOf) -> Parts:
    """A tuple: each operand is an element."""
    return {
        (number, *index): value
        for number, operand in enumerate(instruction.operands)
        for index, value in parts_of[operand].items()
    }


def _element(instruction: HloInstruction, parts_of: PartsOf, number: int | None = None) -> Parts:
    """One element of the operand, which is a tuple."""
    number = instruction.tuple_index if number is None else number
    source = parts_of[instruction.operands[0]]
    return {
        tuple(index): source[number, *index]
        for index, _ in instruction.shape.subshapes()
        if (number, *index) in source
    }


def _destination(instruction: HloInstruction, parts_of: PartsOf) -> Parts:
    """The destination of a collective; the tuple of several results is new."""
    parts = _element(instruction, parts_of, 1)
    return _below(parts) if instruction.shape.is_tuple else parts


def _below(parts: Parts) -> Parts:
    return {index: value for index, value in parts.items() if index}


def _under(prefix: Index, parts: Parts) -> Parts:
    return {(*prefix, *index): value for index, value in parts.items()}


def _operands_first(instruction: HloInstruction, parts_of: PartsOf) -> Parts:
    """A collective's start: element 0 is its operand, or a tuple of them."""
    first, given = instruction.operands[0], instruction.shape.optional_subshape((0,))
    if first.shape.is_tuple:
        return _under((0,), _below(parts_of[first]))
    if given is not None and given.is_tuple:
        return _under((0,), _elements(instruction, parts_of))
    return _under((0,), parts_of[first])


def _async(instruction: HloInstruction, parts_of: PartsOf) -> Parts:
    """Operands at {0}, the wrapped computation's result at {1}; tuples and contexts are new.

    An operation started in an earlier iteration is part of the loop's state, its result at {1}.
    """
    if instruction.opcode == "async-done" and instruction.async_start is None:
        return {
            index[1:]: value
            for index, value in _arrays(instruction.operands[0], parts_of).items()
            if index[:1] == (1,)
        }
    wrapped = instruction.async_wrapped_computation
    has_run = wrapped is not None and wrapped.root in parts_of
    returned = _arrays(wrapped.root, parts_of) if wrapped is not None and has_run else {}
    if instruction.opcode == "async-done":
        return returned
    given = {
        (0, number, *index): value
        for number, operand in enumerate(bound_operands(instruction))
        for index, value in _arrays(operand, parts_of).items()
    }
    return given | _under((1,), returned)


def _async_start(start: HloInstruction, parts_of: PartsOf) -> Parts:
    """`_async`, but {1} of a dynamic-update-slice is the operand it updates."""
    parts = _async(start, parts_of)
    return parts | _under((1,), parts_of[start.operands[0]]) if is_update(start) else parts


def is_update(start: HloInstruction) -> bool:
    wrapped = start.async_wrapped_computation
    return wrapped is not None and wrapped.root.opcode == "dynamic-update-slice"


def _arrays(instruction: HloInstruction, parts_of: PartsOf) -> Parts:
    parts = parts_of[instruction]
    return {tuple(index): parts[tuple(index)] for index, _ in instruction.shape.leaves()}


def _received(done: HloInstruction, parts_of: PartsOf) -> Parts:
    received = parts_of[done.operands[0]]
    return {index: value for index, value in received.items() if index[:1] == (0,)}


_FORWARDED: Forwarded = {
    "add-dependency": _whole,
    "all-gather-done": _destination,
    "all-gather-start": _operands_first,
    "all-reduce-done": _whole,
    "async-done": _async,
    "async-start": _async_start,
    "async-update": _async,
    "bitcast": _whole,
    "collective-permute-done": _destination,
    "collective-permute-start": _operands_first,
    "copy": lambda copy, parts_of: _below(parts_of[copy.operands[0]]),  # of a tuple, the table
    "copy-done": lambda done, parts_of: _element(done, parts_of, 0),
    "copy-start": lambda start, parts_of: _under((1,), parts_of[start.operands[0]]),
    "domain": _whole,
    "get-tuple-element": _element,
    "opt-barrier": _whole,
    "recv-done": _received,
    "send": lambda send, parts_of: _under((0,), parts_of[send.operands[0]]),
    "tuple": _elements,
}
_UNTIL_2026_08: Forwarded = {**_FORWARDED, "async-start": _async}
"""Before commit a79e7be839 of openxla/xla (`UpdateAsyncStartValueSet`)."""
