"""Which libtpu may link."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from hlomem.libtpu import versions


def _installed(patch: pytest.MonkeyPatch, folder: Path, version: str) -> None:
    spec = ModuleSpec("libtpu", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    (folder / "libtpu.so").write_bytes(b"")
    patch.setattr(versions, "version", lambda _: version)
    patch.setattr(versions, "find_spec", lambda _: spec)
    patch.delenv("TPU_LIBRARY_PATH", raising=False)


def test_the_known_release_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _installed(monkeypatch, tmp_path, "0.0.51")
    assert versions.find_library() == ("0.0.51", tmp_path / "libtpu.so")
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(tmp_path / "libtpu.so"))  # as libtpu itself does
    assert versions.find_library().version == "0.0.51"


@pytest.mark.parametrize("version", ["0.0.30", "0.0.40", "0.0.52"])
def test_another_release_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    _installed(monkeypatch, tmp_path, version)
    with pytest.raises(versions.UnknownLibtpuError) as caught:
        versions.find_library()
    assert f"libtpu {version} is not known" in str(caught.value)
    assert "pip install libtpu==0.0.51" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_libtpu_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", missing)
    with pytest.raises(versions.UnknownLibtpuError, match=r"^libtpu is not installed: pip install"):
        versions.find_library()


def test_a_library_of_unknown_version_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _installed(monkeypatch, tmp_path, "0.0.51")
    monkeypatch.setenv("TPU_LIBRARY_PATH", "/elsewhere/libtpu.so")
    with pytest.raises(versions.UnknownLibtpuError, match=r"names /elsewhere/libtpu\.so, a libtpu"):
        versions.find_library()
