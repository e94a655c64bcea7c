"""XLA_FLAGS for a command: the user's stay, ours are added."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem.base.errors import CommandError, InputError
from hlomem.run.flags import read_flags, users_folder, with_dumps


def test_flags_are_added_behind_those_of_the_user_and_nothing_else_changes() -> None:
    before = {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true", "HOME": "/home/me"}
    after = with_dumps(before, read_flags(before), Path("/dumps"), keeps_cache=True)
    assert after == {
        "XLA_FLAGS": "--xla_cpu_enable_fast_math=true --xla_dump_to=/dumps --xla_dump_hlo_as_text",
        "HOME": "/home/me",
    }
    without = with_dumps({}, "", Path("/dumps"), keeps_cache=False)
    assert without["XLA_FLAGS"] == "--xla_dump_to=/dumps --xla_dump_hlo_as_text"
    assert without["JAX_ENABLE_COMPILATION_CACHE"] == "false"


def test_a_file_of_flags_is_read_as_xla_does(tmp_path: Path) -> None:
    path = tmp_path / "flags.txt"
    path.write_text("--xla_a=1\n  --xla_dump_to=/mine\n")
    flags = read_flags({"XLA_FLAGS": str(path)})
    assert flags == "--xla_a=1 --xla_dump_to=/mine"
    assert users_folder(flags) == Path("/mine")
    with pytest.raises(InputError, match=r"names a file of flags, missing\.txt, which cannot be"):
        read_flags({"XLA_FLAGS": "missing.txt"})


@pytest.mark.parametrize(
    ("flags", "folder"),
    [
        ("--xla_dump_to=/a", "/a"),
        ("--xla_dump_to=/a --xla_dump_to=/b", "/b"),
        ("--xla_dump_to '/with space' --xla_c", "/with space"),
        ('--xla_dump_to="rel/ative"', "rel/ative"),
    ],
)
def test_the_folder_of_the_user_is_found_and_kept(flags: str, folder: str) -> None:
    assert users_folder(flags) == Path(folder)
    assert with_dumps({}, flags, None, keeps_cache=True) == {
        "XLA_FLAGS": f"{flags} --xla_dump_hlo_as_text"
    }


def test_no_folder_of_the_user_is_none_and_standard_output_is_refused() -> None:
    assert users_folder("--xla_dump_to_something=3 --xla_dump_hlo_as_text") is None
    with pytest.raises(CommandError, match="dumps to `-`"):
        users_folder("--xla_dump_to=-")


def test_a_folder_with_spaces_is_quoted() -> None:
    made = with_dumps({}, "", Path("/with space"), keeps_cache=True)["XLA_FLAGS"]
    assert made == '--xla_dump_to="/with space" --xla_dump_hlo_as_text'
    assert users_folder(made) == Path("/with space")


@pytest.mark.parametrize(
    ("folder", "flag"),
    [
        ("/a b", '--xla_dump_to="/a b"'),
        ('/a"b', "--xla_dump_to='/a\"b'"),
    ],
)
def test_a_folder_with_blanks_or_quotes_is_quoted_as_xla_reads_it(folder: str, flag: str) -> None:
    made = with_dumps({}, "", Path(folder), keeps_cache=True)["XLA_FLAGS"]
    assert made.startswith(flag)
    assert users_folder(made) == Path(folder)


def test_a_folder_with_both_quotes_cannot_be_named_to_xla() -> None:
    with pytest.raises(CommandError, match="cannot write to a folder with both quotes"):
        with_dumps({}, "", Path("/a\"b'c"), keeps_cache=True)
