"""The page for agents: the JSON it describes is what commands print; llms.txt lists every page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hlomem.cli import main
from tests.places import GOLDENS, ROOT
from tools.build_site import index_for_models

BEFORE, AFTER = str(ROOT / "examples/oom/before"), str(ROOT / "examples/oom/after")
JOBS = GOLDENS / "jobs"
CALLS = {
    "summary": [BEFORE],
    "peak": [BEFORE],
    "advise": [BEFORE],
    "diff": [BEFORE, AFTER],
    "oom": [str(ROOT / "examples/oom/error.txt")],
    "timeline": [str(JOBS / "serve.xplane.pb.gz")],
    "job": [str(JOBS / "serve.xplane.pb.gz"), "--pool", "6GiB"],
    "leaks": [str(JOBS / "restore.saved.prof"), str(JOBS / "restore.both.prof")],
    "improve": [str(next((ROOT / "examples/train_step").glob("*_optimizations.txt")))],
    "shard": [str(GOLDENS / "sharded/stack_of_outputs")],
    "verify": [BEFORE],
}
_ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| ([^|]+) \|", re.MULTILINE)
TABLE = {command: (kind, re.findall(r"`([\w.]+)`", fields)) for command, kind, fields in
         _ROW.findall((ROOT / "docs/agents.md").read_text())}  # fmt: skip


@pytest.mark.parametrize("command", CALLS)
def test_fields_are_those_of_the_page(
    command: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main([command, *CALLS[command], "--json"]) in {0, 1}
    answer = json.loads(capsysbinary.readouterr().out)
    kind, fields = TABLE[command]
    assert (answer["schema"], answer["kind"]) == ("hlomem/1", kind)
    for field in fields:
        found = answer
        for name in field.split("."):
            found = found[name]


def test_the_rest_of_the_table_is_tested_where_it_compiles() -> None:
    assert set(TABLE) - set(CALLS) == {"compile", "fit", "kernel"}  # tests/jax


def test_the_index_for_models_has_every_page(tmp_path: Path) -> None:
    config = (ROOT / "mkdocs.yml").read_text()
    pages = re.findall(r": (\S+\.md)$", config, re.MULTILINE)
    for page in pages:
        path = ROOT / "docs" / page
        (tmp_path / page).write_text(path.read_text() if path.exists() else "# x\n")
    index = index_for_models(tmp_path, config)
    assert index.startswith("# hlomem\n\n> Where XLA puts every tensor")
    assert all(f"]({page[:-3]}/)" in index for page in pages if page != "index.md")
    assert "](job/): A plan says what one program needs." in index
