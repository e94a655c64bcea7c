"""Plans written as protos are those XLA writes."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem import hlo
from hlomem.api.load import load_program
from hlomem.base.errors import CommandError
from hlomem.cli import main
from hlomem.proto.schema import parse_message
from tests.proto.samples import SAMPLES, Sample

DUMPED = [sample for sample in SAMPLES if sample.path.name == "program.hlo.pb"]


def planned(sample: Sample) -> bytes:
    """The proto of our plan of a sample's program."""
    machine = sample.machine
    preset = hlomem.load(sample.path) if machine["backend"] == "tpu" else None
    program = load_program(sample.path)
    made = hlomem.plan(program, preset=preset, backend=machine["backend"], chip=machine["chip"])
    return made.to_proto()


@pytest.mark.parametrize("sample", DUMPED, ids=lambda sample: sample.name)
@pytest.mark.parametrize("field", ["logical_buffers", "buffer_allocations"])
def test_a_plan_is_written_field_by_field_as_xla_writes_it(sample: Sample, field: str) -> None:
    ours = parse_message("HloProto", planned(sample)).buffer_assignment
    xlas = parse_message("HloProto", sample.path.read_bytes()).buffer_assignment
    assert list(getattr(ours, field)) == list(getattr(xlas, field))


@pytest.mark.parametrize("sample", DUMPED, ids=lambda sample: sample.name)
def test_what_lies_together_is_written_as_xla_writes_it(sample: Sample) -> None:
    ours = parse_message("HloProto", planned(sample)).buffer_assignment.buffer_aliases
    xlas = parse_message("HloProto", sample.path.read_bytes()).buffer_assignment.buffer_aliases
    if sample.machine["backend"] == "tpu":  # libtpu leaves some out
        assert list(xlas) == list(ours)[: len(xlas)]
    else:
        assert list(ours) == list(xlas)


@pytest.mark.parametrize("sample", DUMPED, ids=lambda sample: sample.name)
def test_the_program_is_written_as_it_was_read_unknown_fields_too(sample: Sample) -> None:
    ours = parse_message("HloProto", planned(sample)).hlo_module
    xlas = parse_message("HloProto", sample.path.read_bytes()).hlo_module
    assert ours.SerializeToString(deterministic=True) == xlas.SerializeToString(deterministic=True)
    assert ours.ByteSize() >= 0.9 * len(xlas.SerializeToString())


def test_a_program_from_text_has_no_proto() -> None:
    text = (DUMPED[0].folder / "module.hlo").read_text()
    made = hlomem.plan(hlo.parse(text), backend="cpu")
    with pytest.raises(CommandError, match="read from text"):
        made.to_proto()


def test_the_command_writes_one_file(tmp_path: Path) -> None:
    output = tmp_path / "x.hlo.pb"
    command = ["plan", str(DUMPED[0].path), "--backend", "cpu", "-o", str(output)]
    assert main(command) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.hlo.pb"]
    assert hlomem.load(output).assignment == hlomem.load(DUMPED[0].path).assignment
