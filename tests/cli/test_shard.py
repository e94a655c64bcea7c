"""`hlomem shard`: the screen, JSON, and wrong usage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hlomem.base.errors import EXIT_OK, EXIT_USAGE
from hlomem.cli import main
from tests.places import GOLDENS

if TYPE_CHECKING:
    import pytest

SHARDED = GOLDENS / "sharded"


def test_the_screen_names_line_axes_and_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shard", str(SHARDED / "optimizer_momentum")]) == EXIT_OK
    shown = capsys.readouterr().out
    assert "16 devices, mesh fsdp=4, tensor=4" in shown
    assert "optimizer state not sharded as its parameter" in shown
    assert "/home/me/optimizer_momentum.py:23" in shown
    assert "momentum['up']: NamedSharding(mesh, P(None, 'fsdp', 'tensor'))" in shown


def test_json_has_the_fields_of_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shard", str(SHARDED / "clean_tensor"), "--json"]) == EXIT_OK
    read = json.loads(capsys.readouterr().out)
    assert (read["kind"], read["findings"], read["device_count"]) == ("shard", [], 8)
    assert read["mesh"] == "data=4, model=2"


def test_a_log_is_joined(capsys: pytest.CaptureFixture[str]) -> None:
    folder = SHARDED / "reshard_concatenated"
    assert main(["shard", str(folder), "--log", str(folder / "log.txt.gz")]) == EXIT_OK
    assert "Involuntary full rematerialization" in " ".join(capsys.readouterr().out.split())


def test_options_of_dumps_are_refused_for_factories(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shard", "train.py:make", "--space", "hbm"]) == EXIT_USAGE
    assert "`--space` is for a dump" in capsys.readouterr().err
