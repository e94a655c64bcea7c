"""The steps at which values are needed, by a dump's lists or by its module (`HloLiveRange`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hlomem.base.quantities import NEVER, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.check.program import TracedProgram
    from hlomem.hlo.ir import HloInstruction
    from hlomem.view.control_flow import Structure
    from hlomem.view.joined import JoinedDump, PlacedValue


class Needs(Protocol):
    """The steps at which values are needed."""

    def latest_start(self, placed: PlacedValue, moment: Step) -> Step:
        """The latest start of the live range of a value defined at `moment`."""

    def are_met(self, placed: PlacedValue, first: Step, last: Step) -> bool:
        """Whether a value is certainly needed only from `first` to `last`."""

    def iter_needs(self, placed: PlacedValue) -> Iterator[tuple[Step, str]]:
        """The steps at which a value is needed, with the reason."""


class TracedNeeds:
    def __init__(self, joined: JoinedDump, program: TracedProgram) -> None:
        self._time_of = joined.time_of
        self._end = joined.end
        self._read_only = program.read_only
        self._flow = program.flow
        self._spans = program.spans
        self._by_name = program.instruction_by_name
        self._position_at: dict[HloInstruction, Step] = {}
        self._read_at: dict[HloInstruction, Step] = {}
        self._find_plain_moments()

    def _find_plain_moments(self) -> None:
        """The steps of instructions whose values and operands are needed only there."""
        asynchronous = {
            computation
            for computation, callers in self._flow.callers.items()
            if any(caller.opcode.startswith("async-") for caller in callers)
        }
        for instruction in self._flow.parts_of:
            moment, opcode = self._time_of.get(instruction.name), instruction.opcode
            if moment is None:
                continue
            if instruction.parent not in asynchronous:
                self._position_at[instruction] = moment
            if opcode != "call" and opcode != "while" and not opcode.endswith("-start"):
                self._read_at[instruction] = moment
        for root in self._flow.roots:
            if root in self._position_at and root.parent in self._spans:
                self._position_at[root] = self._spans[root.parent][1]

    def latest_start(self, placed: PlacedValue, moment: Step) -> Step:
        """A parameter begins with its computation, an asynchronous result maybe at its own step."""
        instruction = self._by_name.get(placed.value.name)
        if instruction is None:
            return moment
        if instruction.opcode == "parameter":
            return self._spans[instruction.parent][0]
        callers = self._flow.callers_of(instruction)
        is_asynchronous = any(caller.opcode.startswith("async-") for caller in callers or ())
        return Step(moment + 1) if is_asynchronous and instruction.is_root else moment

    def are_met(self, placed: PlacedValue, first: Step, last: Step) -> bool:
        """Certain if nothing asynchronous, called or outside the sequence is involved."""
        value = placed.value.name, placed.index
        if value in self._read_only and last < self._end:
            return False
        for instruction, _ in self._flow.positions_of.get(value, ()):
            if not first <= self._position_at.get(instruction, NEVER) <= last:
                return False
        for user, _, _ in self._flow.uses_of(value):
            if not first <= self._read_at.get(user, NEVER) <= last:
                return False
        return True

    def iter_needs(self, placed: PlacedValue) -> Iterator[tuple[Step, str]]:
        value = placed.value.name, placed.index
        if value in self._read_only:
            yield self._end, "the caller's"
        for instruction, _ in self._flow.positions_of.get(value, ()):
            if instruction.is_root and instruction.parent in self._spans:
                yield self._spans[instruction.parent][1], f"returned by {instruction.name}"
            elif (moment := self._time_of.get(instruction.name)) is not None:
                yield moment, f"part of {instruction.name}"
            yield from self._until_done(instruction)
        for user, _, _ in self._flow.uses_of(value):
            yield from self._read_by(user)

    def _read_by(self, user: HloInstruction) -> Iterator[tuple[Step, str]]:
        if user.opcode == "call":
            return
        if user.opcode == "while":
            user = user.called_computations[0].parameters[0]
        if user.name in self._time_of:
            yield self._time_of[user.name], f"read by {user.name}"
        if user.opcode.endswith("-start"):
            # Operands of an asynchronous operation are read until it is done.
            for moment, done in self._dones(user):
                yield moment, f"read by {user.name} until {done}"

    def _until_done(self, instruction: HloInstruction) -> Iterator[tuple[Step, str]]:
        """An asynchronous computation may run until its operation is done."""
        for caller in self._flow.callers_of(instruction):
            if caller.opcode.startswith("async-"):
                for moment, done in self._dones(caller):
                    yield moment, f"computed until {done}"

    def _dones(self, start: HloInstruction) -> Iterator[tuple[Step, str]]:
        """The steps and names of the `-done`s of an asynchronous operation, through updates."""
        pending = [start]
        while pending:
            for user in pending.pop().users:
                if user.opcode == "async-update":
                    pending.append(user)
                elif user.opcode.endswith("-done") and user.name in self._time_of:
                    yield self._time_of[user.name], user.name


class ListedNeeds:
    """Needs according to a dump's positions and uses, and the control flow found in it."""

    def __init__(self, joined: JoinedDump, structure: Structure) -> None:
        self._joined = joined
        self._time_of = joined.time_of
        self._returned_at = _moments_of_return(joined, structure)
        self._body_start = {loop.instruction: loop.body_parameter for loop in structure.loops}

    def latest_start(self, placed: PlacedValue, moment: Step) -> Step:
        """As for `TracedNeeds`, as far as a dump shows the bounds of computations."""
        if placed.allocation.parameter is not None and self._is_argument(placed):
            return Step(0)
        following = "".join(self._joined.sequence[moment + 1 : moment + 2])
        text = self._joined.printed.get(following)
        if text is None or not text.opcode.endswith("-start"):
            return moment
        starts = self._joined.values_at.get((following, ()), ())
        dones = {done for start in starts for done in start.users}
        is_asynchronous = any(
            position.instruction in dones or (position.index and position.instruction == following)
            for position in placed.positions
        )
        return Step(moment + 1) if is_asynchronous else moment

    def are_met(self, placed: PlacedValue, first: Step, last: Step) -> bool:  # noqa: ARG002
        """Never certain: steps of uses depend on calls, which a dump shows only in part."""
        return False

    def iter_needs(self, placed: PlacedValue) -> Iterator[tuple[Step, str]]:
        used = placed.used
        if used is None:
            return
        is_donated = placed.allocation.maybe_live_out
        if placed.allocation.parameter is not None and not is_donated and self._is_argument(placed):
            yield self._joined.end, "the caller's"
        for position in used.positions:
            key = (position.instruction, position.index or ())
            if key in self._returned_at:
                yield self._returned_at[key], f"returned by {position.instruction}"
            elif (moment := self._time_of.get(position.instruction)) is not None:
                yield moment, f"part of {position.instruction}"
        for use in used.uses or ():
            moment = self._moment_of_use(placed, use.instruction)
            if moment is not None:
                yield moment, f"read by {use.instruction}"

    def _is_argument(self, placed: PlacedValue) -> bool:
        text = self._joined.printed.get(placed.value.name)
        return text is not None and text.opcode == "parameter" and not placed.value.is_phi

    def _moment_of_use(self, placed: PlacedValue, user: str) -> Step | None:
        """The step at which an operand is read; None if other entries of the dump tell."""
        text = self._joined.printed.get(user)
        if text is None and self._enters_a_call(placed, user):
            return None
        if text is not None and text.opcode == "call":
            return None
        if text is not None and text.opcode == "while":
            # A loop's operand ends when the body has its own version.
            user = self._body_start.get(user, "")
        return self._time_of.get(user)

    def _enters_a_call(self, placed: PlacedValue, user: str) -> bool:
        """Whether instructions that a user runs, which precede it, read the value."""
        assert placed.used is not None
        first = self._time_of.get(placed.value.name, Step(0))
        last = self._time_of.get(user, Step(0))
        return any(
            first < self._time_of.get(position.instruction, NEVER) < last
            and position.instruction not in self._joined.users
            for position in placed.used.positions
        )


def _moments_of_return(
    joined: JoinedDump, structure: Structure
) -> dict[tuple[str, tuple[int, ...]], Step]:
    """The last steps at which results of bodies, branches and the program are needed."""
    ends: dict[str, Step] = {}
    for loop in structure.loops:
        if loop.body_root is not None:
            ends[loop.body_root] = joined.time_of[loop.instruction]
    for conditional in structure.conditionals:
        for branch in conditional.branches:
            if branch.root is not None:
                # The next branch's first parameter may follow other instructions of it.
                ends[branch.root] = Step(joined.time_of[branch.root] + 1)
    returned = {
        (name, index): end
        for name, end in ends.items()
        for index in joined.indices_at.get(name, ())
    }
    output = joined.output
    if output is not None:
        name = output.value.name
        parts = joined.indices_at.get(name, ()) if output.value.index == () else [output.index]
        returned.update({(name, index): joined.end for index in parts})
    return returned
