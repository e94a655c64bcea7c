"""`hlomem improve` from outside."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.opt.remat.programs import products
from tests.places import GOLDENS, ROOT

TRAIN_STEP = ROOT / "examples" / "train_step"


def _data(page: Path) -> dict[str, Any]:
    """The data of a page."""
    found = re.search(r'<script[^>]*id="data"[^>]*>([^<]+)<', page.read_text(encoding="utf-8"))
    assert found is not None
    loaded: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(found[1])))
    return loaded


def test_one_screen_says_what_is_saved_and_how_far_it_could_go(run: Run) -> None:
    result = run("improve", TRAIN_STEP)
    screen = result.out.decode()
    assert result.code == 0
    assert "temporaries 2.66 MiB → 1.66 MiB  -37.7%" in screen
    assert "every order needs" in screen
    assert max(map(len, screen.splitlines())) <= 80


def test_memory_is_shown_against_operations(run: Run) -> None:
    module = GOLDENS / "pairs" / "remat_removed" / "after" / "module.hlo"
    result = run("improve", module, "--pareto")
    screen = result.out.decode()
    assert result.code == 0
    assert "Memory against operations" in screen
    assert "stacks of loops" in screen
    assert max(map(len, screen.splitlines())) <= 80
    front = json.loads(run("improve", module, "--pareto", "--json").out)["front"]
    best = [point for point in front if point["on_front"]]
    sizes = [point["temporaries"] for point in best]
    assert sizes == sorted(sizes, reverse=True)
    assert [point["flops"] for point in best] == sorted(point["flops"] for point in best)
    assert {"as given", "better order"} <= {point["name"] for point in front}


def test_the_cheapest_that_fits_a_number_is_named(run: Run, tmp_path: Path) -> None:
    module = GOLDENS / "pairs" / "remat_removed" / "after" / "module.hlo"
    page = tmp_path / "front.html"
    content = json.loads(
        run("improve", module, "--pareto", "--fit", "4MiB", "--json", "--html", page).out
    )
    [chosen] = [point for point in content["front"] if point["is_chosen"]]
    assert chosen["total"] <= content["limit"] == 4 << 20
    assert _data(page)["front"]["points"] == content["front"]
    assert run("improve", module, "--fit", "4MiB").code == 2


def test_json_has_bytes_bound_and_computations(run: Run) -> None:
    content = json.loads(run("improve", TRAIN_STEP, "--json").out)
    assert (content["schema"], content["kind"]) == ("hlomem/1", "improvement")
    assert content["bound"] <= content["after"] < content["before"]
    assert content["computations"][0]["instructions"] == 82


def test_the_written_program_is_planned_as_said(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "better.hlo"
    content = json.loads(run("improve", TRAIN_STEP, "--json", "-o", path).out)
    again = json.loads(run("improve", path, "--json", "--effort", "low").out)
    assert again["before"] == content["after"]


def test_a_file_that_is_there_is_not_overwritten(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "better.hlo"
    path.write_text("mine")
    result = run("improve", TRAIN_STEP, "-o", path)
    assert (result.code, path.read_text()) == (2, "mine")
    assert run("improve", TRAIN_STEP, "-o", path, "--force").code == 0
    assert path.read_text().startswith("HloModule ")


def test_a_dump_without_its_module_cannot_be_written(
    run: Run, goldens: Path, tmp_path: Path
) -> None:
    dump = next(goldens.glob("xla/jaxlib-0.12.0.1/cpu/loop_swap/buffer-assignment.txt"))
    alone = tmp_path / "buffer-assignment.txt"
    alone.write_bytes(dump.read_bytes())
    result = run("improve", alone, "-o", tmp_path / "better.hlo")
    assert result.code == 2
    assert "give --hlo MODULE" in result.err
    assert not (tmp_path / "better.hlo").exists()


def test_wrong_options_are_refused(run: Run) -> None:
    assert run("improve", TRAIN_STEP, "--effort", "huge").code == 2
    assert run("improve", TRAIN_STEP, "--max-slowdown", "0.5").code == 2


def test_the_page_draws_both_orders_and_names_the_cause(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "orders.html"
    saved = json.loads(run("improve", TRAIN_STEP, "--json", "--html", page).out)
    data = _data(page)
    assert data["front"] is None
    assert [report["name"] for report in data["reports"]] == ["as given", "better order"]
    [cause] = data["difference"]["causes"]
    assert cause["delta"] == saved["after"] - saved["before"]
    assert "in another order: main.18" in cause["text"]
    assert run("improve", TRAIN_STEP, "--html", page).code == 2  # it is there already


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "batch=8"], "`--set` is for a factory"),
        (["--target", "cpu", "--chip", "v5e"], "`--chip` is for a dump or module"),
    ],
)
def test_options_of_files_and_of_factories_are_told_apart(
    run: Run, words: list[str], says: str
) -> None:
    result = run("improve", TRAIN_STEP, *words)
    assert result.code == 2
    assert says in result.err


def test_the_program_of_a_factory_is_improved_for_its_target(run: Run) -> None:
    pytest.importorskip("jaxlib._hlo", reason="jax is not installed")
    factory = f"{ROOT / 'tests' / 'jax' / 'factories.py'}:step"
    command = ["improve", factory, "--target", "cpu", "--set", "batch=64", "--json"]
    content = json.loads(run(*command).out)
    assert content["kind"] == "improvement"
    again = content["again"]
    ordered = again["ordered"] if again else content["after"]
    assert 0 < content["bound"] <= ordered <= content["before"]
    assert 0 < content["after"] <= ordered


def test_what_is_almost_free_is_computed_again_unless_it_is_turned_off(
    run: Run, tmp_path: Path
) -> None:
    program = tmp_path / "m.hlo"
    program.write_text(products(4))
    command = ["improve", str(program), "--backend", "cpu", "--json"]
    better, ordered = (json.loads(run(*command, *more).out) for more in ([], ["--recompute", "0"]))
    assert better["again"]["instructions"] == 1
    assert better["after"] < better["again"]["ordered"] == ordered["after"]
    assert not ordered.get("again")
    refused = run(*command, "--recompute", "2")
    assert refused.code == 2
    assert "--recompute" in refused.err
