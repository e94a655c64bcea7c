"""`hlomem advise` from outside."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

from tests.cli.conftest import Run
from tests.places import ROOT


def test_one_screen_of_a_dump_with_its_module(run: Run, goldens: Path) -> None:
    result = run("advise", goldens / "pairs/donation_dropped/after")
    screen = result.out.decode()
    assert result.code == 0
    assert "1.72 MiB reserved in default" in screen
    assert "saves 201.6 KiB to 293.8 KiB (11.4% to 16.7%); re-planned, high" in screen
    assert '      jax.jit(step, donate_argnames=("params",))\n' in screen
    assert "rebuilt" not in screen


def test_a_dump_without_its_module_is_rebuilt(run: Run, goldens: Path) -> None:
    screen = run("advise", goldens / "seeds/003_e0d5fae9bf2de249.txt").out.decode()
    assert "take the result that copy.4 copies in layout {2,1,0}" in screen
    assert "saves 320.2 MiB (24.9%); re-planned, medium confidence" in screen
    assert screen.endswith("note the program was rebuilt from the dump\n")


def test_a_module_is_planned(run: Run, goldens: Path) -> None:
    path = goldens / "pairs/remat_removed/after/module.hlo"
    content = json.loads(run("advise", "--json", path).out)
    assert (content["schema"], content["kind"]) == ("hlomem/1", "advice")
    assert {each["rule"]: each["method"] for each in content["advice"]}["checkpoint"] == "possible"
    assert all(each["link"].startswith("https://docs.jax.dev/") for each in content["advice"])


def test_an_unknown_module_is_refused_with_its_place(run: Run, tmp_path: Path) -> None:
    (tmp_path / "module.hlo").write_text("HloModule m\n\nENTRY %e (a: f32[2]) -> f32[2] {\n")
    assert run("advise", tmp_path / "module.hlo").code == 3


def test_a_page_has_the_advice_of_the_command(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run("advise", ROOT / "examples/oom/before", "--html", page).code == 0
    data = re.search(r'id="data">([^<]*)<', page.read_text())
    assert data is not None
    assert b"donate params, opt_state (4 arrays)" in zlib.decompress(base64.b64decode(data[1]))
    again = run("advise", ROOT / "examples/oom/before", "--html", page)
    assert (again.code, "exists; give --force" in again.err) == (2, True)
