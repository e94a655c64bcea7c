"""Values, uses and live ranges worked out from modules, held against those XLA printed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import hlomem
from hlomem import hlo
from hlomem.check.aliases import join_fusions
from hlomem.check.program import TracedProgram, trace_program
from hlomem.check.required_times import TracedNeeds
from hlomem.view.families import AliasClasses, find_alias_classes
from hlomem.view.joined import JoinedDump, PlacedValue, join_dump
from tests.conftest import GOLDENS

Range = tuple[int, int]

GOLDEN_DUMPS = sorted((GOLDENS / "xla").glob("*/*/*"))


def assert_same(folder: Path) -> None:
    """Everything the module tells about its values is what XLA printed."""
    joined = join_dump(hlomem.load(folder))
    program = trace_program(hlo.parse((folder / "module.hlo").read_text()), joined)
    running = [each for each in joined.placed if each.value.name in joined.time_of]
    names = {(each.value.name, each.index) for each in running}
    assert names == set(program.flow.positions_of), folder
    for placed in running:
        assert positions(program, placed) == listed_positions(placed), (folder, placed.value)
        assert uses(program, placed) == listed_uses(placed), (folder, placed.value)
    # jaxlib before 0.4.24 counts a call itself as a use, later ones only what it calls.
    ranges = [recomputed(joined, program, running, calls_read=old) for old in (False, True)]
    printed: dict[PlacedValue, Range] = {
        each: (each.life.start, each.life.end) for each in running if each.life
    }
    assert printed in ranges, (folder, difference(printed, ranges[0]))


def difference(printed: dict[PlacedValue, Range], found: dict[PlacedValue, Range]) -> list[str]:
    """The ranges that are not XLA's."""
    return [
        f"{each.value.name}: {found[each]}, not {printed[each]}"
        for each in printed
        if found[each] != printed[each]
    ]


def positions(program: TracedProgram, placed: PlacedValue) -> set[tuple[str, tuple[int, ...]]]:
    """Where the module has a value."""
    found = program.flow.positions_of[placed.value.name, placed.index]
    return {(instruction.name, index) for instruction, index in found}


def listed_positions(placed: PlacedValue) -> set[tuple[str, tuple[int, ...]]]:
    """Where XLA says it is."""
    assert placed.used is not None
    return {(each.instruction, tuple(each.index or ())) for each in placed.used.positions}


def uses(program: TracedProgram, placed: PlacedValue) -> set[tuple[str, int, tuple[int, ...]]]:
    """Who reads a value in the module."""
    found = program.flow.uses_of((placed.value.name, placed.index))
    return {(user.name, number, index) for user, number, index in found}


def listed_uses(placed: PlacedValue) -> set[tuple[str, int, tuple[int, ...]]]:
    """Who reads it, by XLA."""
    assert placed.used is not None
    return {
        (each.instruction, each.operand, tuple(each.index or ())) for each in placed.used.uses or ()
    }


def recomputed(
    joined: JoinedDump, program: TracedProgram, values: list[PlacedValue], *, calls_read: bool
) -> dict[PlacedValue, Range]:
    """Live ranges as XLA has them: whole, then cut where the next of the same storage begins."""
    needs = TracedNeeds(joined, program)
    ranges: dict[PlacedValue, Range] = {}
    for placed in values:
        moments = [moment for moment, _ in needs.iter_needs(placed)]
        if calls_read:
            moments += [joined.time_of[call] for call in calls(program, placed)]
        if is_read_only(program, placed):
            moments.append(joined.end)
        ranges[placed] = start_of(joined, placed, needs), max(moments)
    return ranges | cut(families_of(joined, program), ranges)


def start_of(joined: JoinedDump, placed: PlacedValue, needs: TracedNeeds) -> int:
    """When it begins; releases differ by one for what is computed asynchronously."""
    assert placed.life is not None
    moment = joined.time_of[placed.value.name]
    latest = needs.latest_start(placed, moment)
    return moment if placed.life.start == moment < latest else latest


def calls(program: TracedProgram, placed: PlacedValue) -> list[str]:
    """The calls a value is an operand of."""
    found = program.flow.uses_of((placed.value.name, placed.index))
    return [user.name for user, _, _ in found if user.opcode == "call"]


def is_read_only(program: TracedProgram, placed: PlacedValue) -> bool:
    """Whether it is an argument nobody gave away, which XLA keeps to the end."""
    instruction = program.instruction_by_name[placed.value.name]
    return instruction in program.module.entry.parameters and not any(
        (each.parameter_number, tuple(each.parameter_index))
        == (instruction.parameter_number, placed.index)
        for each in program.module.input_output_alias
    )


def families_of(joined: JoinedDump, program: TracedProgram) -> AliasClasses:
    """What shares storage; a donated argument and its result are one more case."""
    families = find_alias_classes(joined, program.structure)
    join_fusions(joined, program, families)
    entry = program.module.entry
    for alias in program.module.input_output_alias:
        argument = entry.parameters[alias.parameter_number].name
        given = joined.values_at.get((argument, tuple(alias.parameter_index)), [])
        returned = joined.values_at.get((entry.root.name, tuple(alias.output_index)), [])
        families.join([*given, *returned], "donated")
    return families


def cut(families: AliasClasses, ranges: dict[PlacedValue, Range]) -> dict[PlacedValue, Range]:
    """`HloLiveRange::NormalizeAliasedBuffers`."""
    new = {}
    for family in families.members(ranges).values():
        order = sorted(family, key=lambda each: (*ranges[each], each.id))
        start, end = ranges[order[0]]
        for one, two in pairwise(order):
            new[one] = start, min(end, ranges[two][0])
            start, end = ranges[two][0], max(end, ranges[two][1])
        new[order[-1]] = start, end
    return new


@pytest.mark.parametrize("folder", GOLDEN_DUMPS, ids=lambda path: "/".join(path.parts[-3:]))
def test_they_are_those_of_the_goldens(folder: Path) -> None:
    assert_same(folder)


def test_they_are_those_of_the_corpus(shared: Path) -> None:
    for text in sorted(shared.glob("corpus/*/*/module.hlo"))[::7]:
        assert_same(text.parent)
