"""Matrix products that devices compute alike, of programs that XLA compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")

import hlomem.jax

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("eight_devices")

MODEL = '''"""Weights that are gathered along an axis which the batch is not split along."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

ROWS = ("data",)


def _make(devices, rows):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "fsdp"))
    batch, whole = NamedSharding(mesh, P(rows)), NamedSharding(mesh, P())
    put = jax.lax.with_sharding_constraint

    def loss(ws, x):
        for w in ws:
            x = put(jnp.tanh(x @ put(w, whole)), batch)
        return jnp.mean(x**2)

    ws = [jax.ShapeDtypeStruct((256, 256), "float32", sharding=NamedSharding(mesh, P("fsdp")))] * 4
    x = jax.ShapeDtypeStruct((4096, 256), "float32", sharding=batch)
    return jax.jit(jax.grad(loss)), (ws, x)


def make_repeated(devices):
    return _make(devices, ROWS)


def make_once(devices):
    return _make(devices, ("data", "fsdp"))
'''


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def test_the_axis_is_told_that_splits_what_devices_compute_alike(model: Path) -> None:
    report = hlomem.jax.shard(f"{model}/model.py:make_repeated", cache=model / "cache")
    first = report.findings[0]
    line = MODEL.split("\n").index('ROWS = ("data",)') + 1
    assert first.source == f"{model}/model.py:{line}"
    assert first.why.endswith("with the change below, 1.0")
    assert '+ROWS = ("data", "fsdp")' in first.how
    assert set(first.change.arguments) == {"x"}
    # Three quarters of an input of 2 MiB, at least.
    assert first.got is not None
    assert first.got >= 3 << 19


def test_nothing_is_told_of_what_is_computed_once(model: Path) -> None:
    report = hlomem.jax.shard(f"{model}/model.py:make_once", cache=model / "cache")
    assert report.findings == ()
