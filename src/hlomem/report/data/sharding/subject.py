"""The program that findings are on: its memory, layouts, and where its shardings are written."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.patterns import lazy_pattern
from hlomem.report.data import roles
from hlomem.report.data.buffers import iter_results
from hlomem.report.data.donation import declared_donations
from hlomem.report.data.lines import is_installed
from hlomem.report.data.phases import is_backward, is_forward
from hlomem.report.data.sharding.collectives import find_resharded
from hlomem.report.data.sharding.finding import Place
from hlomem.report.data.sharding.layouts import Layouts
from hlomem.report.data.sharding.whole_program import WholeProgram, WholeValue, is_constraint

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from hlomem.base.quantities import ValueId
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.sharding import Axis, Sharding
    from hlomem.hlo.text.stack_frames import StackFrame
    from hlomem.report.data.buffers import Buffer
    from hlomem.report.data.memory import MemoryView, Space
    from hlomem.report.data.sharding.layouts import Layout
    from hlomem.report.data.sharding.whole_program import Constraint

_FIRST = "result"
_NAMES = lazy_pattern(r"\w++")
_PART = lazy_pattern(r"result\[(\d{1,6})\]")
_SMALL = 0.001
"""Share of the space below which a value is not looked at."""
_SKIPPED = frozenset({roles.TUPLES, roles.CONSTANTS, roles.THREAD_LOCAL, roles.WORKSPACE})
_SAME_SHAPE = 64
_FEW = 0.02
"""The share of the largest argument of a line below which one says nothing of the others."""


class WrittenAt(NamedTuple):
    """The lines that made an argument, and those of its sharding, innermost first."""

    made: Sequence[str]
    sharding: Sequence[str] = ()
    is_mapped: bool = False
    """Whether a library called the function that made it, once for each of several."""
    written: Sequence[str] = ()
    """The lines that wrote the spec of its sharding."""


class LeftOut(NamedTuple):
    """The specs that a program would have if it did not ask what an axis divides."""

    specs: Mapping[str, str]
    """Those that arguments were meant to have, by name."""
    sums: Mapping[int, Sequence[Place]]
    """The expressions that come to a number."""


class Subject:
    """One memory space of a partitioned program."""

    def __init__(
        self,
        memory: MemoryView,
        space: Space,
        argument_lines: Mapping[str, WrittenAt] | None = None,
        warnings: Sequence[str] = (),
        jit_line: str | None = None,
        donated: Sequence[str] = (),
        is_asked_by_caller: Callable[[str, int], bool] | None = None,
        result_lines: Sequence[str] = (),
        asks_what_divides: Callable[[str, int], bool] | None = None,
        result_origins: Sequence[WrittenAt] = (),
    ) -> None:
        """`donated` are arguments that JAX was told to donate, where that is known.

        `is_asked_by_caller` tells lines that ask for a sharding that their callers give them;
        `result_lines` are those of the parts of `out_shardings`; `asks_what_divides` tells lines of
        functions that may leave out an axis that does not divide an array; `result_origins` has the
        lines that made the shardings of results, in their order.
        """
        self.memory = memory
        self.space = space
        whole = memory.dump.whole
        self.whole = None if whole is None else WholeProgram(whole, is_asked_by_caller)
        self.layouts = Layouts(memory, self.whole)
        self._argument_lines = dict(argument_lines or {})
        self.warnings = tuple(warnings)
        self.jit_line = jit_line
        self._donated = frozenset(donated)
        self._result_lines = tuple(result_lines)
        self._asks_what_divides = asks_what_divides
        self._result_origins = tuple(result_origins)
        self.left_out: LeftOut | None = None

    @cached_property
    def arguments(self) -> list[tuple[str, Buffer, Layout]]:
        """Arguments in the space whose layouts are known: name, buffer, layout."""
        found = []
        for allocation in self.memory.allocations_of(self.space.color):
            if allocation.parameter is None or allocation.parameter.index:
                continue
            layout = self.layouts.parameters.get(allocation.parameter.number)
            owner = self.memory.owner(allocation)
            if layout is not None and owner is not None:
                name = self._argument_name(allocation.parameter.number, owner)
                found.append((name, owner, layout))
        return found

    def _argument_name(self, number: int, owner: Buffer) -> str:
        before = None if self.whole is None else self.whole.parameters.get(number)
        name = before.metadata.op_name if before is not None else ""
        return name or owner.parameter or f"parameter {number}"

    @cached_property
    def results(self) -> list[tuple[str, Buffer, Layout]]:
        """The same of results, named by path or number."""
        found = []
        for part in iter_results(self.memory.joined, self.memory.module):
            number = part.output_index[0] if part.output_index else 0
            if len(part.output_index) > 1 or number >= len(self.layouts.results):
                continue
            layout = self.layouts.results[number]
            buffer = self.memory.buffer_by_id(part.placed.id)
            if layout is not None and buffer.color == self.space.color:
                found.append((buffer.result or f"{_FIRST} {number}", buffer, layout))
        return found

    @cached_property
    def values(self) -> list[tuple[Buffer, Layout]]:
        """Other values that are worth a look and whose layouts are known."""
        found = []
        for buffer in self.memory.buffers:
            is_other = buffer.color != self.space.color or buffer.role in _SKIPPED
            is_small = buffer.size < _SMALL * self.space.size
            if is_other or is_small or buffer.role in roles.OF_ARGUMENTS:
                continue
            layout = self.layouts.of(buffer)
            if layout is not None:
                found.append((buffer, layout))
        return found

    @cached_property
    def is_trained(self) -> bool:
        """Whether the program has a backward pass."""
        return any(is_backward(buffer.op_name) for buffer in self.memory.buffers)

    @cached_property
    def resharded(self) -> dict[ValueId, HloInstruction]:
        """Values that are gathered whole to be split again, by id, with who splits them."""
        return find_resharded(self.memory, self.space)

    def has_local_argument(self, result: str, layout: Layout) -> bool:
        """Whether a result is an argument's new version and lies as that does."""
        return any(
            self.is_update(name, result) and its.local == layout.local
            for name, _, its in self.arguments
        )

    @cached_property
    def _result_numbers(self) -> dict[str, int]:
        numbers = {}
        for part in iter_results(self.memory.joined, self.memory.module):
            buffer = self.memory.buffer_by_id(part.placed.id)
            number = part.output_index[0] if part.output_index else 0
            numbers[buffer.result or f"{_FIRST} {number}"] = number
        return numbers

    def result_number(self, name: str) -> int:
        return self._result_numbers.get(name, 0)

    def is_update(self, argument: str, result: str) -> bool:
        """Whether a result may be the new version of an argument, by order among equal shapes."""
        return self._updates.get(argument) == result

    def is_learned(self, name: str, buffer: Buffer) -> bool:
        """Whether an argument is a model's: by its name, or because a forward pass reads it.

        State may be called as a parameter, but for the name of its tree.
        """
        if buffer.role == roles.WEIGHTS:
            return name not in self._states
        return buffer.role == roles.ARGUMENTS and name in self._read_forward

    @cached_property
    def _states(self) -> set[str]:
        """Arguments that change, unread by the forward pass, which reads one called alike."""
        read = [(name, its.whole) for name, _, its in self.arguments if name in self._read_forward]
        return {
            name
            for name, _, layout in self.arguments
            if name not in self._read_forward and self.has_update(name)
            if any(layout.whole == whole and _is_like(name, other) for other, whole in read)
        }

    @cached_property
    def _read_forward(self) -> set[str]:
        """Arguments that change, and that an operation of the forward pass reads."""
        found = set()
        for name, _, layout in self.arguments:
            users = [] if layout.value is None else list(layout.value.instruction.users)
            users += [user for one in users if one.opcode == "tuple" for user in one.users]
            if self.has_update(name) and any(is_forward(one.metadata.op_name) for one in users):
                found.add(name)
        return found

    def has_update(self, argument: str) -> bool:
        """Whether the program returns a new version of an argument."""
        return argument in self._updates or self.is_donated(argument)

    @cached_property
    def _updates(self) -> dict[str, str]:
        """Each argument's result: the same path end, or else the order among equal shapes."""
        found: dict[str, str] = {}
        taken: set[str] = set()
        state = [
            one for one in self.arguments if one[1].role != roles.INPUTS or self.is_donated(one[0])
        ]
        state.sort(key=_number)
        of_shape: dict[tuple[int, ...], list[tuple[str, str]]] = {}
        for result, buffer, layout in self.results:
            of_shape.setdefault(layout.whole, []).append((result, _element(buffer)))
        for is_exact, is_typed in ((True, True), (True, False), (False, False)):
            for name, buffer, layout in state:
                tail, element = _tail(name), _element(buffer)
                for result, its in of_shape.get(layout.whole, ()) if name not in found else ():
                    is_same = not is_exact or (tail != "" and tail == _tail(result))
                    is_same = is_same and (not is_typed or element == its)
                    if is_same and result not in taken:
                        found[name] = result
                        taken.add(result)
                        break
        return found

    def is_result_fixed(self, result: str) -> bool:
        """Whether the program itself says the sharding of a result, so that it cannot follow."""
        module = self.memory.module
        if module is None:
            return False
        text = module.attributes.get("allow_spmd_sharding_propagation_to_output", "")
        words = text.strip("{}").split(",")
        number = self.result_number(result)
        if len(words) == 1:
            return words[0] != "true"
        return number < len(words) and words[number] != "true"

    @property
    def donated(self) -> list[tuple[str, Buffer, Layout]]:
        """Arguments that are donated, or were to be."""
        return [one for one in self.arguments if self.is_donated(one[0])]

    def is_input(self, name: str, buffer: Buffer) -> bool:
        """Whether an argument is data: by its name, or unnamed and without a new version."""
        if self.is_donated(name):
            return False
        if buffer.role != roles.ARGUMENTS:
            return buffer.role == roles.INPUTS
        return name not in self._returned

    @cached_property
    def _returned(self) -> set[str]:
        """The arguments of whose path and shape there is a result."""
        results = {(_tail(name), layout.whole) for name, _, layout in self.results}
        return {
            name
            for name, _, layout in self.arguments
            if (tail := _tail(name)) and (tail, layout.whole) in results
        }

    def is_donated(self, argument: str) -> bool:
        """Whether an argument may be overwritten by a result."""
        return argument in self._donated or argument in self._declared

    @cached_property
    def _declared(self) -> frozenset[str]:
        modules = [self.memory.module, None if self.whole is None else self.whole.module]
        numbers = {
            number for module in modules if module is not None
            for number, _ in declared_donations(module)
        }  # fmt: skip
        names: dict[int, str] = {}
        for allocation in self.memory.allocations_of(self.space.color):
            owner = self.memory.owner(allocation)
            if allocation.parameter is not None and owner is not None:
                number = allocation.parameter.number
                names[number] = self._argument_name(number, owner)
        return frozenset([names[number] for number in numbers if number in names])

    # Lines.

    def line_of_arguments(self, sizes: Mapping[str, float]) -> str | None:
        """The line that makes some arguments or their shardings, weighted; None if unknown.

        One that makes no other argument, or else no other large one of their tree, or else the one
        that writes their spec; or else none of another tree, and that of the shardings first where
        a library has mapped a function over them. Where they are the lesser part of what that has
        made, the line that made them.
        """
        known = self._argument_lines
        trees = {top_of(name) for name in sizes}
        small = self._smaller_than(max(sizes, key=lambda name: sizes[name]))
        others = self._lines_but_of(lambda name: name in sizes)
        large = self._lines_but_of(
            lambda name: name in sizes or (name in small and top_of(name) in trees)
        )
        any_large = self._lines_but_of(lambda name: name in sizes or name in small)
        other_trees = self._lines_but_of(lambda name: top_of(name) in trees)
        weights: dict[str, float] = {}
        for name, size in sizes.items():
            at = known.get(name, WrittenAt(()))
            is_most = at.is_mapped and not self._is_lesser_part(at.made[:1], sizes)
            own = (*at.made, *at.sharding)
            asked = (*at.sharding, *at.made) if is_most else at.made
            ways: tuple[tuple[Sequence[str], Container[str]], ...] = (
                (own, others),
                (own, large),
                (at.written, any_large),
                (asked, other_trees),
                (at.made, ()),
            )
            lines = [line for some, but in ways for line in some if line not in but]
            if lines:
                weights[lines[0]] = weights.get(lines[0], 0.0) + size
        return max(weights, key=lambda line: weights[line], default=None)

    def _lines_but_of(self, is_left_out: Callable[[str], bool]) -> set[str]:
        """The lines that make arguments or their shardings, but for some."""
        return {
            line
            for name, at in self._argument_lines.items()
            if not is_left_out(name)
            for line in (*at.made, *at.sharding, *at.written)
        }

    def _smaller_than(self, name: str) -> set[str]:
        """Arguments that are small next to one, so that they say nothing of its line."""
        elements = {one: prod(layout.whole) for one, _, layout in self.arguments}
        return {one for one in elements if elements[one] < _FEW * elements.get(name, 0)}

    def _is_lesser_part(self, made: Sequence[str], names: Container[str]) -> bool:
        """Whether few of the large arguments that were made at a line are among these."""
        alike = {
            name: prod(layout.whole)
            for name, _, layout in self.arguments
            if self._argument_lines.get(name, WrittenAt(())).made[:1] == made
        }
        large = [name for name in alike if alike[name] >= _FEW * max(alike.values())]
        return 2 * len([name for name in large if name in names]) < len(large)

    def first_use(self, buffer: Buffer) -> str | None:
        """The first line that reads an argument."""
        joined = self.memory.joined
        names = sorted(joined.placed_by_id[buffer.id].users, key=lambda n: joined.time_of.get(n, 0))
        for name in names:
            for index in joined.indices_at.get(name, ()):
                for placed in joined.values_at[name, index]:
                    made = self.memory.buffer_of(placed)
                    if placed.value.name == name and made.source:
                        return made.source
        return None

    def _result_value(self, name: str) -> WholeValue | None:
        if self.whole is None:
            return None
        number = self.result_number(name)
        if number >= len(self.whole.results):
            return None
        producer = self.whole.results[number][1]
        return WholeValue(producer, producer.metadata.op_name, ())

    def result_line(self, name: str) -> str | None:
        """The line that gives a result its sharding: a constraint, or the call of jax.jit."""
        value = self._result_value(name)
        if value is not None and value.instruction.opcode == "custom-call":
            return self.whole.line(value) if self.whole else None
        if (line := self._result_origin(name)) is not None:
            return line
        if self.jit_line is not None:
            part = _PART.match(name)
            number = int(part[1]) if part else -1
            is_part = 0 <= number < len(self._result_lines)
            return self._result_lines[number] if is_part else self.jit_line
        return None if value is None or self.whole is None else self.whole.line(value)

    def _result_origin(self, name: str) -> str | None:
        """The innermost line that made a result's sharding, and none that is another."""
        number = self.result_number(name)
        if number >= len(self._result_origins):
            return None
        of_number = {self.result_number(one): layout for one, _, layout in self.results}
        mine = of_number.get(number)
        made = [
            (of_number.get(at), origin)
            for at, origin in enumerate(self._result_origins)
            if at != number
        ]
        made += [(its, self._argument_lines[one]) for one, _, its in self.arguments
                 if one in self._argument_lines]  # fmt: skip
        others = {
            line
            for its, at in made
            if its is not None and mine is not None and its.sharding != mine.sharding
            for line in (*at.sharding, *at.made, *at.written)
        }
        own = self._result_origins[number]
        return next((line for line in own.sharding if line not in others), None)

    def constraint_of_result(self, name: str) -> Sharding | None:
        """The sharding that a constraint asks for a result."""
        value = self._result_value(name)
        if value is None or self.whole is None or value.instruction.opcode != "custom-call":
            return None
        return self.whole.sharding_of(value.instruction)

    def place_of_result(self, name: str) -> Place | None:
        value = self._result_value(name)
        return None if value is None else self.place(value)

    def place(self, value: WholeValue) -> Place | None:
        """The expression of a value in the user's code."""
        frame = None if self.whole is None else self.whole.frame(value)
        return None if frame is None else _place(frame, value)

    def places_of_calls(self, value: WholeValue) -> list[Place]:
        """The calls that lead to a value, of functions that others call, too."""
        frames = [] if self.whole is None else self.whole.calls_of(value)
        return [_place(frame, value) for frame in frames]

    def asked_at(self, value: WholeValue | None) -> tuple[tuple[int, ...], str]:
        """The dimensions of the value under a constraint, and what that asks for."""
        if value is None or self.whole is None or not is_constraint(value.instruction):
            return (), ""
        asked = self.whole.sharding_of(value.instruction)
        return value.dimensions, "" if asked is None else asked.spec()

    def is_axis_dropped(self, constraint: Constraint, axes: Sequence[Axis]) -> bool:
        """Whether a helper may have left out axes, because they do not divide what it is given."""
        place = self.place(constraint.value)
        lines: list[tuple[str, int]] = []
        for frame in constraint.value.instruction.stack_frames if place is not None else ():
            assert place is not None
            if (frame.file_name, frame.line) == (place.file, place.line):
                break
            lines += [] if is_installed(frame.file_name) else [(frame.file_name, frame.line)]
        return self._is_dropped(lines[:1], constraint.value.dimensions, axes)

    def may_be_left_out(self, name: str, whole: Sequence[int], axes: Sequence[Axis]) -> bool:
        """The same of the function that makes an argument's sharding."""
        at = self._argument_lines.get(name, WrittenAt(()))
        where = (*at.sharding[:1], *at.made[:1], *at.written[:1])
        split = [line.rpartition(":") for line in where]
        lines = [(file, int(number)) for file, _, number in split if number.isdigit()]
        return self._is_dropped(lines, whole, axes)

    def _is_dropped(
        self, lines: Sequence[tuple[str, int]], whole: Sequence[int], axes: Sequence[Axis]
    ) -> bool:
        is_uneven = any(size % axis.size for size in whole for axis in axes)
        asks = self._asks_what_divides
        return is_uneven and asks is not None and any(asks(*line) for line in lines)

    def places_alike(self, constraint: Constraint) -> tuple[Place, ...]:
        """Other lines where constraints ask for the same, of values of the same rank."""
        found: dict[Place, None] = {}
        for other in self.whole.constraints if self.whole is not None else ():
            is_same = other.sharding == constraint.sharding
            is_same = is_same and len(other.value.dimensions) == len(constraint.value.dimensions)
            place = self.place(other.value) if is_same else None
            if place is not None and not is_backward(other.value.op_name):
                found[place] = None
        own = self.place(constraint.value)
        return tuple([place for place in found if place != own])


def _number(argument: tuple[str, Buffer, Layout]) -> int:
    value = argument[2].value
    return value.instruction.parameter_number if value is not None else 0


def _element(buffer: Buffer) -> str:
    return buffer.shape.partition("[")[0]


def _is_like(one: str, other: str) -> bool:
    """Whether paths differ but in a part on the way: `m['w']` and `params['w']`."""
    mine, its = _NAMES.findall(one), _NAMES.findall(other)
    while mine and its and mine[0] == its[0]:
        mine, its = mine[1:], its[1:]
    rest = its[1:]
    return bool(mine and rest) and mine[-len(rest) :] == rest


def top_of(path: str) -> str:
    """The first name of a path: `params` of `params['w']`."""
    return path.partition("[")[0].partition(".")[0]


def _tail(path: str) -> str:
    """The end of a path without its first name: `['w']` of `params['w']` and `result[0]['w']`."""
    opened = path.find("[")
    inner = path[opened:] if opened >= 0 else ""
    if path.startswith(_FIRST):
        inner = inner.partition("]")[2] if inner[1:2].isdigit() else inner
    return inner[-_SAME_SHAPE:]


def _place(frame: StackFrame, value: WholeValue) -> Place:
    return Place(
        file=frame.file_name,
        line=frame.line,
        column=frame.column,
        end_line=frame.end_line,
        end_column=frame.end_column,
        is_constraint=is_constraint(value.instruction),
    )
