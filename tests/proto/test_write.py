"""Plans written as protos are those XLA writes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

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


def test_a_program_from_text_has_no_proto_without_jaxlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib", None)
    text = (DUMPED[0].folder / "module.hlo").read_text()
    made = hlomem.plan(hlo.parse(text), backend="cpu")
    with pytest.raises(CommandError, match=r"read from text.*pip install 'hlomem\[jax\]', or plan"):
        made.to_proto()


@pytest.mark.parametrize("sample", DUMPED[:2], ids=lambda sample: sample.name)
def test_a_program_from_text_is_written_as_xla_reads_it(sample: Sample) -> None:
    text = (sample.folder / "module.hlo").read_text()
    _skip_where_xla_reads_no_compact_text()
    made = hlomem.plan(hlo.parse(text), backend="cpu")
    written = parse_message("HloProto", made.to_proto())
    xlas = parse_message("HloProto", sample.path.read_bytes())
    ours, theirs = (_places_by_name(each) for each in (written, xlas))
    assert ours == theirs


def test_a_program_jax_printed_is_written_with_its_plan(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    argument = jax.ShapeDtypeStruct((16, 16), "float32")
    text = jax.jit(lambda x: jax.numpy.sin(x) @ x).lower(argument).compile().as_text()
    made = hlomem.plan(hlo.parse(text), backend="cpu")
    (tmp_path / "made.hlo.pb").write_bytes(made.to_proto())
    read = hlomem.load(tmp_path / "made.hlo.pb")
    assert read.assignment is not None
    assert read.assignment == made.dump.assignment
    written = load_program(tmp_path / "made.hlo.pb")
    names = [instruction.name for instruction in written.entry.instructions]
    assert names == [instruction.name for instruction in hlo.parse(text).entry.instructions]


def _skip_where_xla_reads_no_compact_text() -> None:
    """The texts of the samples write parts of tuples as `%x#1`, which jaxlib reads since 0.11."""
    jaxlib = pytest.importorskip("jaxlib")
    if tuple(map(int, jaxlib.__version__.split(".")[:2])) < (0, 11):
        pytest.skip(f"jaxlib {jaxlib.__version__} does not read compact text")


def _places_by_name(proto: Any) -> list[object]:
    """Where buffers lie, by what their instructions are called: ids are of one proto only."""
    name_of = {
        instruction.id: (computation.name, instruction.name)
        for computation in proto.hlo_module.computations
        for instruction in computation.instructions
    }
    plan = proto.buffer_assignment
    buffer_of = {
        buffer.id: (name_of[buffer.defined_at.instruction_id], *buffer.defined_at.shape_index)
        for buffer in plan.logical_buffers
    }
    return [
        (place.offset, place.size, buffer_of[place.logical_buffer_id])
        for allocation in plan.buffer_allocations
        for place in allocation.assigned
    ]


def test_a_text_that_xla_does_not_read_has_no_proto() -> None:
    pytest.importorskip("jaxlib._hlo")
    text = (DUMPED[0].folder / "module.hlo").read_text()
    odd = text.replace(" parameter(0)", " parameter(0), nobodys=1", 1)
    made = hlomem.plan(hlo.parse(odd), backend="cpu")
    with pytest.raises(CommandError, match="XLA does not read this text"):
        made.to_proto()


def test_a_proto_is_written_beside_texts_alone_or_on_standard_output(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    command = ["plan", str(DUMPED[0].path), "--backend", "cpu", "--proto"]
    assert main([*command, "-o", str(tmp_path / "all")]) == 0
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == [
        "program-buffer-assignment-values.txt",
        "program-buffer-assignment.txt",
        "program-live-range.txt",
        "program-memory-usage-report.txt",
        "program.hlo.pb",
    ]
    assert main([*command, "-o", str(tmp_path / "x.hlo.pb")]) == 0
    capfdbinary.readouterr()
    assert main(command) == 0
    printed = capfdbinary.readouterr().out
    alone = (tmp_path / "x.hlo.pb").read_bytes()
    assert printed == alone == (tmp_path / "all" / "program.hlo.pb").read_bytes()


def test_a_terminal_gets_no_proto(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["plan", str(DUMPED[0].path), "--backend", "cpu", "--proto"]) == 2
    assert "give -o X.hlo.pb" in capsys.readouterr().err


def test_the_command_writes_one_file(tmp_path: Path) -> None:
    output = tmp_path / "x.hlo.pb"
    command = ["plan", str(DUMPED[0].path), "--backend", "cpu", "-o", str(output)]
    assert main(command) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.hlo.pb"]
    assert hlomem.load(output).assignment == hlomem.load(DUMPED[0].path).assignment
