"""Programs read from protos are those their texts give."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlomem
from hlomem import hlo
from hlomem.api.load import load_program
from hlomem.base.errors import InputError
from hlomem.hlo.ir import HloModule
from hlomem.hlo.text.printer import format_module
from hlomem.proto.module import read_module
from hlomem.proto.schema import message_types, parse_message
from tests.proto.samples import FOLDERS, NAMES, SAMPLES, Sample

ONLY_IN_TEXT = re.compile(
    r", (?:allow_spmd_sharding_propagation_to_(?:parameters|output)=\{[^}]*\}"
    r"|num_partitions=\d+|replica_count=\d+|sharding=\{mesh\[.*?\]\})(?=,|$)",
    re.MULTILINE,
)
"""What a module's proto does not say, and what of it is not read."""
CONFIG = re.compile(r"backend_config=(\{.*\})$", re.MULTILINE)
LATE = re.compile(r", \{\"[^\n]*$| stack_frame_id=\d+", re.MULTILINE)
"""What is written after the plan was made, and frames of another run."""


def comparable(module: HloModule, like: HloModule) -> str:
    """The text of a module, without what differs between a proto and a text."""
    text = ONLY_IN_TEXT.sub("", format_module(module, like.style))
    return CONFIG.sub(lambda match: json.dumps(json.loads(match[1]), sort_keys=True), text)


@pytest.mark.parametrize("folder", FOLDERS[:2] + FOLDERS[3:], ids=lambda folder: folder.name)
def test_a_program_prints_as_its_text(folder: Path) -> None:
    text = hlo.parse((folder / "module.hlo").read_text())
    assert comparable(load_program(folder / "program.hlo.pb"), text) == comparable(text, text)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_programs_at_the_end_of_a_compile_differ_in_configurations_only(sample: Sample) -> None:
    text = hlo.parse((sample.folder / "module.hlo").read_text())
    program = hlomem.load(sample.path, module=sample.module).module
    assert program is not None
    printed, expected = (LATE.sub("", comparable(each, text)) for each in (program, text))
    assert printed.partition("%")[2] == expected.partition("%")[2]


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_a_plan_of_a_proto_is_the_dump_ids_included(folder: Path) -> None:
    sample = next(sample for sample in SAMPLES if sample.folder == folder)
    dump = hlomem.load(folder / "buffer-assignment.txt")
    machine = sample.machine
    preset = dump if machine["backend"] == "tpu" else None
    program = hlomem.load(sample.path, module=sample.module).module
    assert program is not None
    made = hlomem.plan(program, preset=preset, backend=machine["backend"], chip=machine["chip"])
    assert made.dump.assignment == dump.assignment


def _tiny() -> dict[str, object]:
    """The smallest program: one parameter, returned."""
    shape = {"element_type": 11, "dimensions": [2], "layout": {"minor_to_major": [0]}}
    instruction = {"name": "x", "opcode": "parameter", "shape": shape, "id": 1}
    computation = {"name": "main", "id": 1, "root_id": 1, "instructions": [instruction]}
    return {"name": "tiny", "entry_computation_id": 1, "computations": [computation]}


def _encoded(changes: dict[str, object]) -> bytes:
    fields = _tiny()
    fields.update(changes)
    encoded: bytes = message_types()["Module"](**fields).SerializeToString()
    return encoded


def test_a_module_without_schedule_is_planned_in_the_order_of_xlas_scheduler() -> None:
    module = read_module(_encoded({}))
    assert not module.is_scheduled
    assert module.entry.root.shape.text == "f32[2]{0}"
    notes = hlomem.plan(module, backend="cpu").notes
    assert any("schedule" in note for note in notes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"entry_computation_id": 7}, "no computation is the entry"),
        ({"name": "not a name"}, "cannot be called"),
        ({"schedule": {"sequences": [{"key": 1, "value": {}}]}}, "leaves instructions out"),
        (
            {"schedule": {"sequences": [{"key": 1, "value": {"instruction_ids": [2]}}]}},
            "is not one of it",
        ),
    ],
)
def test_what_no_program_can_be_is_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_module(_encoded(changes))


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("shape", {"element_type": 99}, "elements of type 99"),
        ("shape", {"element_type": 11, "dimensions": [-4]}, "a dimension of size -4"),
        (
            "shape",
            {"element_type": 11, "dimensions": [2], "layout": {"minor_to_major": [1]}},
            "is no order of 1 dimensions",
        ),
        ("operand_ids", [1], "not above it"),
        ("called_computation_ids", [5], "calls computation 5"),
        ("parameter_number", 3, "not numbered"),
        ("opcode", "NO", "opcode"),
        ("backend_config_payload", {"id": 4}, "payload 4 of 0"),
    ],
)
def test_instructions_that_cannot_be_are_refused(field: str, value: object, problem: str) -> None:
    fields = _tiny()
    fields["computations"][0]["instructions"][0][field] = value  # type: ignore[index]
    with pytest.raises(InputError, match=problem):
        read_module(message_types()["Module"](**fields).SerializeToString(), "some.pb").validate()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_changed_bytes_give_a_module_or_an_input_error(data: st.DataObject) -> None:
    whole = (FOLDERS[0] / "program.hlo.pb").read_bytes()
    module = parse_message("HloProto", whole).hlo_module.SerializeToString()
    changed = bytearray(module)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(module) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InputError):
        assert read_module(bytes(changed)).computations
