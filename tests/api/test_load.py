"""Dumps as users have them: files, gzip, standard input, folders."""

from __future__ import annotations

import errno
import gzip
import io
import os
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

import hlomem
from hlomem.api.folder import files_of, list_modules
from hlomem.api.load import decode, encode, limited_to, load, read_source, reading_once
from hlomem.api.protos import holds_programs
from hlomem.base.errors import CommandError, HlomemError, InputError, ParseError
from tests.dump.test_parts import ASSIGNMENT, BY_SPACE, COMBINED, LIVE_RANGE, VALUES

if TYPE_CHECKING:
    from collections.abc import Callable

TREE = (
    "  Stack trace breakdown for peak usage: 4 bytes\n"
    "    m (100.0%, total: 4 bytes, current: 4 bytes, remaining: 0 bytes)\n"
)
SHORT = {
    "buffer-assignment.txt": ASSIGNMENT,
    "values.txt": VALUES,
    "live-range.txt": LIVE_RANGE.replace("a: 4 bytes", "a{}: 4 bytes (cumulative: 4 bytes)") + TREE,
    "memory-usage-report.txt": BY_SPACE,
}
LONG_SUFFIXES = (
    "-buffer-assignment.txt",
    "-buffer-assignment-values.txt",
    "-live-range.txt",
    "-memory-usage-report.txt",
)
STEM = "module_0001.jit_f.cpu_after_optimizations"
LONG = dict(zip([STEM + suffix for suffix in LONG_SUFFIXES], SHORT.values(), strict=True))


def write(folder: Path, texts: dict[str, str], *, gzipped: tuple[str, ...] = ()) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        if name in gzipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(encode(text)))
        else:
            (folder / name).write_bytes(encode(text))


def stdin_of(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


# --- one text ----------------------------------------------------------------------------------


def test_a_file_is_loaded_from_a_path_or_its_name(tmp_path: Path) -> None:
    write(tmp_path, {"x.txt": COMBINED})
    assert load(tmp_path / "x.txt").to_text() == COMBINED
    assert hlomem.load(str(tmp_path / "x.txt")).name == str(tmp_path / "x.txt")


def test_a_text_is_loaded_as_it_is() -> None:
    dump = load(COMBINED)
    assert (dump.name, dump.to_text()) == ("<string>", COMBINED)


def test_an_error_in_a_text_names_it_string() -> None:
    with pytest.raises(ParseError, match=r"^<string>:1:1: expected `BufferAssignment:`"):
        load("x\n")


def test_an_empty_text_is_no_path() -> None:
    with pytest.raises(InputError, match="<string>:1:1: the file is empty"):
        load("")


def test_standard_input_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin_of(monkeypatch, gzip.compress(encode(COMBINED)))
    assert load("-").to_text() == COMBINED
    stdin_of(monkeypatch, encode("foreign"))
    with pytest.raises(ParseError, match=r"^<stdin>:1:1: "):
        load(Path("-"))


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz", "x"])
def test_gzip_is_known_by_its_bytes_and_not_by_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(encode(COMBINED)))
    assert load(tmp_path / name).to_text() == COMBINED
    (tmp_path / name).write_bytes(encode(COMBINED))
    assert load(tmp_path / name).to_text() == COMBINED


def test_a_damaged_gzip_file_is_refused_wherever_it_breaks_off() -> None:
    data = gzip.compress(encode(COMBINED))
    for size in range(2, len(data)):
        with pytest.raises(InputError, match=r"^x\.gz: damaged gzip file: "):
            decode("x.gz", data[:size])


@pytest.mark.parametrize("place", [2, 3, 10, 20, -8, -1])
def test_a_gzip_file_with_a_wrong_byte_is_refused(place: int) -> None:
    data = bytearray(gzip.compress(encode(COMBINED), mtime=0))
    data[place] ^= 0xFF
    with pytest.raises(InputError, match="damaged gzip file"):
        decode("x.gz", bytes(data))


def test_every_byte_survives_decoding() -> None:
    data = bytes(range(256)) + "é×│".encode()
    assert encode(decode("x", data).text) == data


# --- what cannot be read -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: folder / "missing.txt", "No such file or directory"),
        (lambda folder: folder / "missing" / "values.txt", "No such file or directory"),
        (lambda folder: folder / "file" / "below.txt", "Not a directory"),
        (lambda folder: folder / ("x" * 300), "File name too long"),
        (lambda folder: f"{folder}/a\0b", "embedded null byte"),
    ],
)
def test_a_path_that_cannot_be_read_is_named_with_the_reason(
    tmp_path: Path, make: Callable[[Path], Path | str], reason: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=reason):
        load(make(tmp_path))


def test_a_file_that_may_not_be_read_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, _mode: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    write(tmp_path, {"x.txt": COMBINED})
    monkeypatch.setattr("hlomem.api.load.open", refuse, raising=False)
    with pytest.raises(InputError) as caught:
        load(tmp_path / "x.txt")
    assert str(caught.value) == f"{tmp_path}/x.txt: Permission denied"


def test_a_folder_that_may_not_be_listed_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone: No such file or directory"):
        list_modules(tmp_path / "gone")


def test_control_characters_in_a_name_do_not_reach_the_terminal() -> None:
    with pytest.raises(InputError) as caught:
        read_source("no\x1b[31m")
    assert "\\x1b[31m: No such file" in str(caught.value)


def test_a_name_that_leaves_no_room_for_its_siblings_is_read(tmp_path: Path) -> None:
    name = "x" * (255 - len("-live-range.txt")) + "-live-range.txt"
    write(tmp_path, {name: LIVE_RANGE})
    assert files_of(tmp_path / name) == (tmp_path / name,)
    assert load(tmp_path / name).to_text() == LIVE_RANGE


# --- what is too large -------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_an_input_may_have_as_many_bytes_as_allowed(tmp_path: Path, packed: bool) -> None:
    data = encode(COMBINED)
    (tmp_path / "x.txt").write_bytes(gzip.compress(data) if packed else data)
    with limited_to(len(data)):
        assert load(tmp_path / "x.txt").to_text() == COMBINED
    with limited_to(len(data) - 1), pytest.raises(InputError, match="the limit of inputs"):
        load(tmp_path / "x.txt")


def test_standard_input_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/zero").open("rb") as zeros, limited_to(10_000_000):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=zeros))
        with pytest.raises(InputError, match="<stdin>: more than 10000000 bytes"):
            load("-")


def test_a_bomb_is_not_unpacked() -> None:
    """Ten megabytes that unpack to ten gigabytes: told long before memory runs out."""
    bomb = gzip.compress(bytes(1 << 20)) * 10_000
    tracemalloc.start()
    with pytest.raises(InputError, match="unpacks to more than 100 times its size"):
        decode("bomb.gz", bomb)
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()


# --- files of one dump -------------------------------------------------------------------------


@pytest.mark.parametrize("texts", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("gzipped", [False, True])
def test_any_file_of_a_dump_brings_the_others(
    tmp_path: Path, texts: dict[str, str], gzipped: bool
) -> None:
    write(tmp_path, texts, gzipped=tuple(texts)[::2] if gzipped else ())
    write(tmp_path, {"other-live-range.txt": LIVE_RANGE, "notes.txt": "x"})
    wanted = [each + ".gz" if gzipped and i % 2 == 0 else each for i, each in enumerate(texts)]
    for name in wanted:
        assert files_of(tmp_path / name) == tuple(tmp_path / each for each in wanted)
        dump = load(tmp_path / name)
        assert dump.notes == ()
        assert dump.to_text() == "".join(texts.values())


def test_the_file_that_was_asked_for_wins_over_its_twin(tmp_path: Path) -> None:
    write(tmp_path, SHORT)
    write(tmp_path, SHORT, gzipped=tuple(SHORT))
    first = files_of(tmp_path / "values.txt.gz")
    assert [path.name for path in first] == [
        "buffer-assignment.txt",
        "values.txt.gz",
        "live-range.txt",
        "memory-usage-report.txt",
    ]


def test_missing_files_of_a_dump_are_noted(tmp_path: Path) -> None:
    write(tmp_path, {"live-range.txt": SHORT["live-range.txt"]})
    assert [note.kind for note in load(tmp_path / "live-range.txt").notes] == ["missing"] * 2


def test_files_of_two_versions_that_hold_the_same_are_refused(tmp_path: Path) -> None:
    write(tmp_path, SHORT | {"buffer-assignment.txt": COMBINED})
    with pytest.raises(ParseError, match=r"values.txt:2:1: two files hold values"):
        load(tmp_path / "values.txt")


def test_a_file_of_another_name_stands_alone(tmp_path: Path) -> None:
    assert files_of(tmp_path / "my-values.txt") == (tmp_path / "my-values.txt",)


# --- folders -----------------------------------------------------------------------------------


def test_files_of_equal_bytes_are_read_once_and_keep_their_names(tmp_path: Path) -> None:
    for name, live in (("one", LIVE_RANGE), ("two", LIVE_RANGE.replace("a: 4", "a: 5"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "buffer-assignment.txt").write_text(ASSIGNMENT)
        (tmp_path / name / "live-range.txt").write_text(live)
        (tmp_path / name / "module.hlo").write_text(
            "HloModule m\n\nENTRY main {\n  ROOT a = f32[] parameter(0)\n}\n"
        )
    with reading_once():
        one, two = load(tmp_path / "one"), load(tmp_path / "two")
        assert one.module is two.module
    assert one.assignment is two.assignment
    assert one.live_ranges != two.live_ranges
    assert {Path(part.name).parent.name for part in two.parts} == {"two"}
    assert two.texts() == load(tmp_path / "two").texts()
    assert load(tmp_path / "one").assignment is not load(tmp_path / "one").assignment


def test_a_folder_with_one_dump_is_that_dump(tmp_path: Path) -> None:
    write(tmp_path / "prog", SHORT | {"module.hlo": "HloModule m", "README": "x"})
    assert load(tmp_path / "prog").to_text() == "".join(SHORT.values())
    assert load(str(tmp_path / "prog")).name == "prog"


def test_a_module_of_a_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"x.txt": COMBINED})
    with pytest.raises(CommandError, match=r"is one text: `--module` chooses from several"):
        load(tmp_path / "x.txt", module="x")


def test_no_file_of_the_goldens_raises_anything_but_our_errors(goldens: Path) -> None:
    for path in sorted(goldens.rglob("*")):
        is_dump = path.name.endswith((".txt", ".txt.gz")) or holds_programs(path)
        if path.is_file() and not is_dump:
            with pytest.raises(HlomemError):
                load(path)
