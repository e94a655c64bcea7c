"""Native kernels are built where they can be, all or none, without asking."""

from __future__ import annotations

from pathlib import Path
from subprocess import CalledProcessError

import pytest

from hatch_build import ENDING, build_kernels, can_compile

needs_compiler = pytest.mark.skipif(not can_compile(), reason="no compiler, or no headers")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package with two small kernels."""
    for name in ("_one", "_two"):
        source = tmp_path / "src/hlomem/base" / f"{name}.c"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("int answer(void);\nint answer(void) { return 42; }\n")
    return tmp_path


@needs_compiler
@pytest.mark.parametrize("wanted", ["", "1"])
def test_kernels_are_built_without_asking(root: Path, wanted: str) -> None:
    built = build_kernels(root, wanted)
    assert [library.name for library in built] == [f"_one{ENDING}", f"_two{ENDING}"]
    assert all(library.is_file() for library in built)


def test_kernels_that_are_forbidden_are_not_built(root: Path) -> None:
    assert build_kernels(root, "0") == []


def test_without_a_compiler_there_are_none_and_an_error_if_they_were_insisted_on(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build_kernels(root, "") == []
    with pytest.raises(OSError, match="no C compiler"):
        build_kernels(root, "1")


@needs_compiler
def test_a_kernel_that_cannot_be_built_takes_the_others_with_it_quietly(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (root / "src/hlomem/base/_two.c").write_text("no C\n")
    assert build_kernels(root, "") == []
    assert capfd.readouterr() == ("", "")
    with pytest.raises(CalledProcessError):
        build_kernels(root, "1")
    assert not list(root.rglob("_two.*[0-9]"))
