"""Examples of documents that need JAX."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.update_docs import DOCUMENTS

pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
BLOCKS = [
    (path.name, block)
    for path in DOCUMENTS
    for block in re.findall(r"```python jax\n(.*?)```", path.read_text(), re.DOTALL)
]


@pytest.mark.parametrize(("document", "code"), BLOCKS)
def test_examples_with_jax_run(document: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(code)
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{document}: {done.stderr}"
    assert [path.name for path in tmp_path.iterdir()] == ["example.py"]
