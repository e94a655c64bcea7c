"""An autotuner's choices are handed to compiles without a device under the names they look up."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from hlomem.base.errors import CommandError, InputError
from hlomem.jax import tuned_choices
from hlomem.jax.target_kinds import parse_target

LOGGED = """\
I1116 autotuner_cache_interface.cc:106] Codegen version: ef00bdc5c7995cbf from CUDNN:9.10.0
I1116 autotuner_cache_interface.cc:85] Device fingerprint: a4baa03864db7cfb from CUDA: 9.0
"""
CHOSEN = """\
entries {
  key {
    target {
      device: "ed0e56ab8b2a0ecb"
      hlo_fingerprint: "021c83d33a38dca5b1875700c18dad8f"
    }
    environment {
      codegen_version: "fe9062d0fff82a66"
    }
  }
}
"""


def _logs(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    tuned_choices.file_for.cache_clear()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stderr=text))


def test_choices_get_the_fingerprints_of_the_target(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _logs(monkeypatch, LOGGED)
    path = tmp_path / "tuned.txt"
    path.write_text(CHOSEN)
    made = Path(tuned_choices.file_for(str(path), "cuda-h200").name).read_text()
    changed = [
        new for old, new in zip(CHOSEN.splitlines(), made.splitlines(), strict=True) if old != new
    ]
    assert [line.split()[-1] for line in changed] == ['"a4baa03864db7cfb"', '"ef00bdc5c7995cbf"']


def test_xla_tells_its_fingerprints() -> None:
    if parse_target("cuda-h200").missing:
        pytest.skip("no plugin for CUDA here")
    device, version = tuned_choices._fingerprints("cuda-h200")
    assert len(device) == len(version) == 16
    assert device != version


def test_what_cannot_be_done_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _logs(monkeypatch, "")
    path = tmp_path / "tuned.txt"
    path.write_text(CHOSEN)
    with pytest.raises(CommandError, match="does not say how"):
        tuned_choices.file_for(str(path), "cuda-h200")
    path.write_text("nothing")
    with pytest.raises(InputError, match="no results of XLA's autotuner"):
        tuned_choices.file_for(str(path), "cuda-h200")
