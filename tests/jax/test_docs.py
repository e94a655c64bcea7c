"""What documents show of JAX: examples run, commands print what is shown, projects are tested."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools.documents import DOCUMENTS, ROOT, Block, blocks
from tools.update_docs import rendered

pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
NEEDS = ["jax", *(["libtpu"] if find_spec("libtpu") else [])]
BLOCKS = [block for block in blocks() if block.need in NEEDS]
PYTHON = [block for block in BLOCKS if block.language == "python" and not block.marker]
PRINTED = [
    (path, need) for need in NEEDS for path in DOCUMENTS if f"with {need}" in path.read_text()
]
PROJECTS = sorted({block.marker for block in BLOCKS if block.language == "sh"})
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "XLA_FLAGS"},
    "JAX_PLATFORMS": "cpu",
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "BROWSER": "true",
}


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.place)
def test_examples_with_jax_run(block: Block, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(block.text)
    places = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path.parent / "cache")}
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env={**ENVIRONMENT, **places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{block.place}: {done.stderr}"
    assert [path.name for path in tmp_path.iterdir()] == ["example.py"]


@pytest.mark.parametrize(
    ("document", "need"), PRINTED, ids=lambda value: getattr(value, "name", value)
)
def test_shown_commands_print_what_is_shown(document: Path, need: str) -> None:
    text = document.read_text()
    assert rendered(text, need) == text, f"run `python -m tools.update_docs docs/{document.name}`"


@pytest.mark.parametrize("marker", PROJECTS)
def test_what_is_typed_in_a_project_works(marker: str, tmp_path: Path) -> None:
    name = marker.removeprefix("in ")
    shutil.copytree(ROOT / "tests/docs/projects" / name, tmp_path, dirs_exist_ok=True)
    for block in blocks():
        if file := re.fullmatch(rf"file (\S+) of {name}", block.marker):
            (tmp_path / file[1]).write_text(block.text)
    for block in BLOCKS:
        if block.marker == marker:
            done = subprocess.run(
                ["bash", "-e", "-c", block.text],
                cwd=tmp_path,
                env={**ENVIRONMENT, "PYTHONPATH": str(tmp_path)},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{block.place}: {done.stdout}{done.stderr}"
