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
from hlomem.hlo.rewrite import Rewriter
from hlomem.hlo.text.printer import format_module
from hlomem.proto.module import read_module
from hlomem.proto.schema import message_types, parse_message
from tests.places import GOLDENS
from tests.proto.samples import FOLDERS, NAMES, SAMPLES, Sample

PROTO_TEXTS = GOLDENS / "proto_texts"

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


def _fused(changes: dict[str, object], *, scheduled: bool = False) -> bytes:
    """A program whose entry has one fusion; `changes` are those of the root inside it."""
    shape = {"element_type": 11, "dimensions": [2], "layout": {"minor_to_major": [0]}}

    def instruction(number: int, opcode: str, **fields: object) -> dict[str, object]:
        return {"name": f"i{number}", "opcode": opcode, "shape": shape, "id": number, **fields}

    root = {**instruction(2, "negate", operand_ids=[1]), **changes}
    body = {"name": "body", "id": 1, "root_id": 2, "instructions": [instruction(1, "parameter")]}
    body["instructions"].append(root)  # type: ignore[attr-defined]
    fusion = instruction(4, "fusion", operand_ids=[3], called_computation_ids=[1])
    entry = {"name": "main", "id": 2, "root_id": 4}
    entry["instructions"] = [instruction(3, "parameter"), fusion]
    module = message_types()["Module"](name="m", entry_computation_id=2)
    for computation in (body, entry):
        module.computations.add(**computation)
    if scheduled:
        module.schedule.sequences.add(key=1).value.instruction_ids.extend([1, 2])
    encoded: bytes = module.SerializeToString()
    return encoded


def test_an_order_has_all_instructions_or_none() -> None:
    message = parse_message("Module", _fused({}, scheduled=True))
    [sequence] = message.schedule.sequences
    del sequence.value.instruction_ids[1:]
    with pytest.raises(InputError, match="leaves instructions out"):
        read_module(message.SerializeToString()).open_all()
    del sequence.value.instruction_ids[:]
    module = read_module(message.SerializeToString())
    fused = module.entry.root.called_computations[0]
    assert (
        len(fused.outline()) == len(fused.instructions) == len(message.computations[0].instructions)
    )


@pytest.mark.parametrize("scheduled", [False, True])
def test_the_body_of_a_fusion_is_read_when_somebody_asks(scheduled: bool) -> None:
    module = read_module(_fused({}, scheduled=scheduled))
    body = module.computation_by_name["body"]
    assert not body.is_open
    assert [opcode for _, opcode in body.outline()] == ["parameter", "negate"]
    assert (body.first_parameter_name, body.calls()) == ("i1", [])
    assert not body.is_open
    assert body.root.operands == (body.parameters[0],)
    assert body.is_open


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"operand_ids": [9]}, r"some\.pb: `i2` uses instruction 9, which is not above it"),
        ({"shape": {"element_type": 99}}, r"some\.pb: .*elements of type 99"),
        ({"name": "i1"}, "two instructions of `body` have one name"),
        ({"id": 1}, "two instructions of `body` have one id"),
        ({"name": "a b"}, "not a program XLA could have: an instruction cannot be called"),
        ({"id": 7}, "`body` has no root"),
        ({"opcode": "get-tuple-element", "tuple_index": 1}, "takes element 1, which its operand"),
        ({"opcode": "add"}, "`add` takes 2 operands, not 1"),
        ({"opcode": "fusion", "operand_ids": [1]}, "calls a computation, which must be given"),
    ],
)
def test_what_is_wrong_in_a_fusion_is_said_when_it_is_read(
    changes: dict[str, object], problem: str
) -> None:
    module = read_module(_fused(changes), "some.pb")
    with pytest.raises(InputError, match=problem):
        module.open_all()


def test_shapes_of_a_fusion_are_refused_before_it_is_linked() -> None:
    body = read_module(_fused({"shape": {"element_type": 99}}), "some.pb").computations[0]
    with pytest.raises(InputError, match=r"some\.pb: .*elements of type 99"):
        body.outline()


def test_calls_inside_a_fusion_are_known_before_it_is_linked() -> None:
    """A conditional names its branches after the type of its first operand."""
    data = (PROTO_TEXTS / "attributes.pb").read_bytes()
    message = parse_message("Module", data)
    entry = next(each for each in message.computations if each.name == "main")
    outer = message.computations.add(name="outer", id=entry.id + 1000, root_id=1)
    for number, parameter in enumerate(entry.program_shape.parameters):
        made = outer.instructions.add(name=f"q{number}", opcode="parameter", id=number + 2)
        made.shape.CopyFrom(parameter)
        made.parameter_number = number
    fusion = outer.instructions.add(name="all", opcode="fusion", id=1, fusion_kind="kCustom")
    fusion.shape.CopyFrom(entry.program_shape.result)
    fusion.operand_ids.extend(range(2, len(outer.instructions) + 1))
    fusion.called_computation_ids.append(entry.id)
    message.entry_computation_id = outer.id
    for field in ("schedule", "input_output_alias", "buffer_donor"):
        message.ClearField(field)
    encoded = message.SerializeToString()
    module, read = read_module(encoded), read_module(encoded)
    read.open_all()
    asked, known = (each.computation_by_name["main"].calls() for each in (module, read))
    assert [(call.opcode, call.attribute_text) for call in asked] == [
        (call.opcode, call.attribute_text) for call in known
    ]
    assert any(call.opcode == "conditional" for call in asked)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": 2}, "two computations have id 2"),
        ({"name": "main"}, "two computations have one name"),
        ({"name": "a b"}, "a computation cannot be called"),
    ],
)
def test_computations_are_told_apart(change: dict[str, object], problem: str) -> None:
    message = parse_message("Module", _fused({}))
    for field, value in change.items():
        setattr(message.computations[0], field, value)
    with pytest.raises(InputError, match=problem):
        read_module(message.SerializeToString())


def test_an_entry_may_be_known_by_its_name_only() -> None:
    message = parse_message("Module", _fused({}))
    message.entry_computation_id, message.entry_computation_name = 0, "main"
    assert read_module(message.SerializeToString()).entry.name == "main"


def test_a_place_in_a_proto_is_one_in_what_would_be_printed() -> None:
    module = read_module(_fused({}))
    fusion = module.entry.root
    assert module.source.text[slice(*fusion.span)].startswith("ROOT %i4 = f32[2]{0} fusion(")


def test_shapes_that_disagree_are_refused_with_their_place() -> None:
    data = _fused({})
    message = parse_message("Module", data)
    message.computations[1].instructions[1].opcode = "tuple"
    message.computations[1].instructions[1].ClearField("called_computation_ids")
    with pytest.raises(
        InputError, match=r"not a program XLA could have: .*not a tuple of 1 element"
    ):
        read_module(message.SerializeToString(), "some.pb")


def test_an_edited_copy_reads_bodies_and_attributes_of_its_own() -> None:
    module = read_module(_fused({"metadata": {"op_name": "n"}}))
    copy = Rewriter(module).finish()
    body = copy.computation_by_name["body"]
    assert body.root.parent is body
    assert body.root.metadata.op_name == "n"
    assert copy.entry.root.called_computations == (body,)
    assert copy.entry.root.attributes == module.entry.root.attributes


@pytest.mark.parametrize("has_effect", [True, False])
def test_an_effect_is_known_to_be_none_before_attributes_are_read(has_effect: bool) -> None:
    call = {"opcode": "custom-call", "custom_call_target": "f"}
    effect = {"custom_call_has_side_effect": True} if has_effect else {}
    root = read_module(_fused({**call, **effect})).computation_by_name["body"].root
    assert root.may_have("custom_call_has_side_effect") == has_effect
    assert ("custom_call_has_side_effect" in root.attributes) == has_effect


@pytest.mark.parametrize(
    ("metadata", "tells"),
    [
        ({}, False),
        ({"op_name": "a\x12\x02:\x00"}, False),
        ({"source_file": "train.py", "source_line": 3}, True),
        ({"stack_frame_id": 1}, True),
    ],
)
def test_a_line_inside_of_a_fusion_is_known_before_it_is_linked(
    metadata: dict[str, object], tells: bool
) -> None:
    module = read_module(_fused({"metadata": metadata}))
    assert module.creation is not None
    assert module.creation.tells_lines() == tells
    assert not module.computation_by_name["body"].is_open
