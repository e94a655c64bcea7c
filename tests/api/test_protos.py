"""Protos, profiles, caches and executables open wherever dumps do."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

import hlomem
from hlomem.api.load import limited_to, load_any, load_program
from hlomem.api.protos import list_programs, programs_in
from hlomem.base.errors import CommandError, HlomemError, InputError
from hlomem.cli import main
from hlomem.hlo.ir import HloModule
from hlomem.proto.schema import message_types, parse_message
from tests.fuzz.proto_mutants import varint
from tests.proto.samples import PROTOS, SAMPLES, Sample

SCAN = PROTOS / "cpu_scan" / "program.hlo.pb"
PROFILE = PROTOS / "cpu_train_step" / "profile.xplane.pb"
CACHE = PROTOS / "cpu_train_step" / "cache"


def summary(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    """What `hlomem summary --json` says, without the name of its input."""
    assert main(["summary", str(path), "--json", *more]) == 0
    return _nameless(json.loads(capsys.readouterr().out))


def _nameless(said: Any) -> Any:
    if isinstance(said, dict):
        return {key: _nameless(value) for key, value in said.items() if key != "name"}
    return [_nameless(value) for value in said] if isinstance(said, list) else said


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_source_of_one_compile_gives_one_summary(
    sample: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    text = summary(sample.folder / "buffer-assignment.txt", capsys)
    given = summary(sample.path, capsys, "--module", sample.module)
    assert "no live ranges: computed from its program" in given.pop("notes")[0]
    assert text.pop("notes") == []
    assert given == text


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "zlib"])
def test_packed_protos_are_recognised(pack: Any, tmp_path: Path) -> None:
    packed = tmp_path / "whatever"
    packed.write_bytes(pack(SCAN.read_bytes()))
    assert hlomem.load(packed).assignment == hlomem.load(SCAN).assignment


def test_standard_input_may_be_a_proto(monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.TextIOWrapper(io.BytesIO(SCAN.read_bytes()))
    monkeypatch.setattr("sys.stdin", given)
    assert hlomem.load("-").assignment == hlomem.load(SCAN).assignment


def test_a_snapshot_is_the_program_in_it(tmp_path: Path) -> None:
    snapshot = message_types()["HloSnapshot"]()
    snapshot.hlo.ParseFromString(SCAN.read_bytes())
    (tmp_path / "x").write_bytes(snapshot.SerializeToString())
    assert hlomem.load(tmp_path / "x").assignment == hlomem.load(SCAN).assignment


def test_a_module_alone_is_a_program(tmp_path: Path) -> None:
    module = parse_message("HloProto", SCAN.read_bytes()).hlo_module
    (tmp_path / "x").write_bytes(module.SerializeToString())
    assert isinstance(load_any(tmp_path / "x"), HloModule)
    with pytest.raises(InputError, match="a program without a memory plan"):
        hlomem.load(tmp_path / "x")


def test_a_plan_alone_says_that_it_needs_its_program(tmp_path: Path) -> None:
    plan = parse_message("HloProto", SCAN.read_bytes()).buffer_assignment
    (tmp_path / "x").write_bytes(plan.SerializeToString())
    with pytest.raises(InputError, match=r"memory plan .* without its program"):
        hlomem.load(tmp_path / "x")


def test_the_largest_program_is_taken_and_a_name_takes_another() -> None:
    assert hlomem.load(PROFILE).name == "train_step"
    assert hlomem.load(PROFILE).chosen == "the largest of 5 programs"
    other = hlomem.load(PROFILE, module="jit_convert_element_type")
    assert (other.name, other.chosen) == ("convert_element_type", "")
    assert hlomem.load(PROFILE, module="jit_broadcast_in_dim#2").name == "broadcast_in_dim"


def test_a_part_of_a_name_that_fits_several_lists_them() -> None:
    with pytest.raises(CommandError, match=r"(?s)3 programs .* match `jit_b`.*KiB  broad"):
        hlomem.load(PROFILE, module="jit_b")


def test_a_cache_is_a_folder_of_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert hlomem.load(CACHE).name == "train_step"
    assert main(["show", str(CACHE)]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in listed[1:]] == [
        "train_step",
        "convert_element_type",
    ]


def test_an_entry_that_cannot_be_read_stops_no_other(tmp_path: Path) -> None:
    shutil.copytree(CACHE, tmp_path / "cache")
    (tmp_path / "cache" / "jit_a-123-cache").write_bytes(b"\x78\x9cdamaged")
    assert hlomem.load(tmp_path / "cache").name == "train_step"


def test_a_profile_is_found_below_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "profile" / "2026_11_15"
    folder.mkdir(parents=True)
    shutil.copy(PROFILE, folder / "host.xplane.pb")
    assert hlomem.load(tmp_path).name == "train_step"


def test_text_dumps_of_a_folder_come_before_its_protos() -> None:
    assert hlomem.load(SCAN.parent).name != "scan_layers"


def test_a_program_is_planned_from_any_of_them() -> None:
    for sample in SAMPLES:
        assert load_program(sample.path).is_scheduled


@pytest.mark.parametrize("path", sorted({sample.path for sample in SAMPLES}), ids=str)
def test_files_that_break_off_are_refused_in_one_sentence(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    for size in range(1, len(data), max(100, len(data) // 40)):
        cut = tmp_path / "cut.pb"
        cut.write_bytes(data[:size])
        assert refusal(cut).startswith((str(cut), "nothing"))


def refusal(path: Path) -> str:
    """Why a file is refused; `nothing` where it is not, as what was cut off may be other things."""
    try:
        load_any(path)
    except HlomemError as error:
        return str(error)
    return "nothing is wrong"


def test_inputs_are_held_to_their_limit(tmp_path: Path) -> None:
    packed = tmp_path / "x"
    packed.write_bytes(zlib.compress(SCAN.read_bytes()))
    with limited_to(5_000), pytest.raises(InputError, match="more than 5000 bytes"):
        hlomem.load(packed)


def test_messages_inside_themselves_are_refused(tmp_path: Path) -> None:
    bomb = b"\x08\x01"
    for _ in range(20_000):
        bomb = b"\x0a" + varint(len(bomb)) + bomb
    (tmp_path / "x.pb").write_bytes(bomb)
    with pytest.raises(InputError, match="no program"):
        hlomem.load(tmp_path / "x.pb")


def test_sizes_nobody_can_hold_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.pb").write_bytes(b"\x0a" + varint(1 << 62) + b"\x12\x01a")
    with pytest.raises(InputError, match="no program"):
        hlomem.load(tmp_path / "x.pb")


def test_a_folder_of_damaged_protos_is_refused_with_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("b.hlo.pb", "a.hlo.pb"):
        (tmp_path / name).write_bytes(b"junk")
    assert main(["show", str(tmp_path)]) == 3
    assert f"{tmp_path / 'a.hlo.pb'}: no program is in this file" in capsys.readouterr().err


def test_of_many_programs_the_largest_are_listed() -> None:
    one = programs_in(SCAN.read_bytes(), str(SCAN), 1 << 30)[0]
    lines = list_programs([one] * 23)
    assert lines[-1].strip() == "and 3 smaller"
    assert len([line for line in lines if one.name in line]) == 20
