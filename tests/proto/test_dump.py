"""A proto's plan gives the records of the text dump of the same compile."""

from __future__ import annotations

from typing import Any

import pytest

import hlomem
from hlomem.base.errors import InputError
from hlomem.check.verify import verify
from hlomem.dump.dump import Dump
from hlomem.dump.records import Record
from hlomem.proto.dump import make_dump
from hlomem.proto.module import read_module
from hlomem.proto.schema import parse_message
from tests.proto.samples import FOLDERS, SAMPLES, Sample


def both(sample: Sample) -> tuple[Dump, Dump]:
    """The dump in a proto, and the text dump of the same compile."""
    given = hlomem.load(sample.path, module=sample.module)
    return given, hlomem.load(sample.folder / "buffer-assignment.txt")


def without_order(dump: Dump) -> list[Any]:
    """The values with their positions and uses in no order, which no proto has."""
    assert dump.values is not None
    return [
        (value.id, value.name, value.index, value.is_phi, value.color, *lists)
        for value in dump.values.values
        for lists in [(frozenset(value.positions), frozenset(value.uses or ()))]
    ]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
@pytest.mark.parametrize("part", ["assignment", "live_ranges", "report"])
def test_every_source_gives_the_records_of_the_text(sample: Sample, part: str) -> None:
    given, text = both(sample)
    record = getattr(given, part)
    assert isinstance(record, Record)
    assert record == getattr(text, part)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_source_gives_the_values_of_the_text(sample: Sample) -> None:
    given, text = both(sample)
    assert given.values is not None
    assert text.values is not None
    assert given.values.total_bytes == text.values.total_bytes
    assert without_order(given) == without_order(text)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_plan_of_xla_is_right(sample: Sample) -> None:
    dump = hlomem.load(sample.path)
    assert verify(dump, module=dump.module).is_clean


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_what_a_proto_lacks_is_said(sample: Sample) -> None:
    notes = [note.text for note in hlomem.load(sample.path).notes]
    assert any("no uses and no live ranges" in text for text in notes)


PLAN = parse_message("HloProto", (FOLDERS[0] / "program.hlo.pb").read_bytes())


def changed_plan() -> Any:
    """A plan to change."""
    return parse_message("BufferAssignment", PLAN.buffer_assignment.SerializeToString())


def refuse(plan: Any, problem: str) -> None:
    """Expect that a plan is not that of its program."""
    with pytest.raises(InputError, match=problem):
        make_dump(read_module(PLAN.hlo_module.SerializeToString()), plan)


def test_a_place_of_a_value_that_is_not_defined_is_refused() -> None:
    plan = changed_plan()
    plan.buffer_allocations[0].assigned[0].logical_buffer_id = 9999
    refuse(plan, "places value 9999")


def test_a_value_of_an_instruction_that_is_not_there_is_refused() -> None:
    plan = changed_plan()
    plan.logical_buffers[0].defined_at.instruction_id = 123456789
    refuse(plan, "`123456789`, which is not there")


def test_a_value_at_a_part_that_is_not_there_is_refused() -> None:
    plan = changed_plan()
    plan.logical_buffers[0].defined_at.shape_index.append(7)
    refuse(plan, "where the program defines no value")


def test_a_value_that_is_defined_twice_is_refused() -> None:
    plan = changed_plan()
    plan.logical_buffers[1].id = plan.logical_buffers[0].id
    refuse(plan, "twice")


def test_a_parameter_that_is_not_there_is_refused() -> None:
    plan = changed_plan()
    allocation = next(
        each for each in plan.buffer_allocations if each.is_entry_computation_parameter
    )
    allocation.parameter_number = 77
    refuse(plan, "parameter 77")


def test_a_plan_of_an_unscheduled_program_is_refused() -> None:
    whole = parse_message("HloProto", PLAN.SerializeToString())
    whole.hlo_module.ClearField("schedule")
    with pytest.raises(InputError, match="no schedule"):
        make_dump(read_module(whole.hlo_module.SerializeToString()), whole.buffer_assignment)
