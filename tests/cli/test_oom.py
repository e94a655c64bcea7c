"""`hlomem oom` from outside."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_one_screen_of_a_message(run: Run, goldens: Path) -> None:
    result = run("oom", goldens / "oom/libtpu-0.0.24/temporaries.txt")
    screen = result.out.decode()
    assert result.code == 0
    assert screen.startswith("Out of memory on TPU when compiling\n")
    assert "needs 24.00 GiB of hbm on each device, 15.75 GiB available: over by 8.25 GiB" in screen
    assert "4 × f32[262144,4096]{1,0:T(8,128)}  temporaries" in screen
    assert 'XLA_FLAGS="--xla_dump_to=xla_dump --xla_dump_hlo_as_text" python …' in screen


def test_a_message_can_be_piped(run: Run, goldens: Path) -> None:
    path = goldens / "oom/jaxlib-0.11.2-h200/gradients.txt"
    assert run("oom", stdin=path.read_bytes()).out == run("oom", path).out


def test_json_names_its_schema_and_kind(run: Run, goldens: Path) -> None:
    path = goldens / "oom/libtpu-0.0.2/padded_convolution.txt"
    content = json.loads(run("oom", "--json", path).out)
    assert (content["schema"], content["kind"]) == ("hlomem/1", "oom")
    assert content["failure"]["needed"] == 2**34
    assert sum(part["size"] for part in content["roles"]) == content["named"]


def test_a_text_without_a_message_is_refused(run: Run) -> None:
    result = run("oom", stdin=b"all is well\n")
    assert result.code == 3
    assert "<stdin>: no out-of-memory message of XLA in this text" in result.err


def test_control_characters_of_a_log_do_not_reach_the_terminal(run: Run, goldens: Path) -> None:
    text = (goldens / "oom/libtpu-0.0.24/temporaries.txt").read_bytes()
    screen = run("oom", stdin=text.replace(b"jit(network)", b"jit(\x1b]0;x\x07)")).out
    assert b"\x1b" not in screen
    assert b"\x07" not in screen


def test_a_message_may_be_the_argument(run: Run, goldens: Path) -> None:
    text = (goldens / "oom/libtpu-0.0.24/temporaries.txt").read_text()
    assert run("oom", text).out == run("oom", stdin=text.encode()).out
    result = run("oom", "nowhere.log")
    assert (result.code, "No such file" in result.err) == (3, True)
