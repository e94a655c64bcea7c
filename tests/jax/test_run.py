"""`hlomem run` around a program of JAX."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")

SCRIPT = """
import jax, jax.numpy as jnp

def sort_huge(x):
    return jnp.sort(x[:, None] * x[None, :], axis=0)[0]

jax.config.update("jax_compilation_cache_dir", "cache")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.jit(lambda x: jnp.tanh(x @ x))(jnp.ones((64, 64)))
print("small is done")
jax.jit(sort_huge)(jnp.ones(10_000_000)).block_until_ready()
"""


def test_an_error_of_jax_is_explained_every_time_cache_or_not(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    line = [sys.executable, "-m", "hlomem", "run", "--", sys.executable, "train.py"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TMPDIR": str(tmp_path / "temporary")}
    (tmp_path / "temporary").mkdir()
    for _ in range(2):
        done = subprocess.run(
            line, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
        )
        assert done.returncode == 1
        assert done.stdout == "small is done\n"
        lines = done.stderr.rstrip().splitlines()
        assert any("RESOURCE_EXHAUSTED" in text for text in lines)
        assert lines[-1].startswith(f"  look at {tmp_path / 'train.py'}:5: ")
        assert any(text.endswith("  sort_huge") for text in lines)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert (tmp_path / "hlomem-run.html").exists()
