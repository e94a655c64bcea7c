"""A gather that each device takes a part of, in a `shard_map`: told, and compiled otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import hlomem.jax

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")

pytestmark = pytest.mark.usefixtures("eight_devices")

MODEL = '''"""A model."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct


def whole_along(x, axis):
    return lax.all_gather(x, axis, axis=1, tiled=True)


def rows_to_columns(x):
    columns = x.shape[2] // 8
    whole = whole_along(x, "n")
    return lax.dynamic_slice_in_dim(whole, lax.axis_index("n") * columns, columns, axis=2)


def rows_to_columns_at_once(x):
    return lax.all_to_all(x, "n", split_axis=2, concat_axis=1, tiled=True)


def _make(devices, turn):
    mesh = Mesh(np.array(devices), ("n",))
    spec = P(None, "n")

    def mixed(x):
        x = jnp.cumsum(turn(jnp.sin(x)), axis=1)
        return lax.all_to_all(x, "n", split_axis=1, concat_axis=2, tiled=True)

    step = jax.shard_map(mixed, mesh=mesh, in_specs=spec, out_specs=spec)
    return jax.jit(step), (S((4, 1024, 512), "float32", sharding=NamedSharding(mesh, spec)),)


def make_gathered(devices):
    return _make(devices, rows_to_columns)


def make_exchanged(devices):
    return _make(devices, rows_to_columns_at_once)
'''


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def _line(text: str) -> int:
    return MODEL[: MODEL.index(text)].count("\n") + 1


def test_a_gather_and_a_slice_are_an_all_to_all(model: Path) -> None:
    report = hlomem.jax.shard(f"{model}/model.py:make_gathered", cache=model / "cache")
    [finding] = report.findings
    assert finding.kind == "reshard"
    assert finding.source == f"{model}/model.py:{_line('whole = whole_along')}"
    lines = [link.line for link in finding.chain]
    assert f"{model}/model.py:{_line('return lax.dynamic_slice')}" in lines
    assert f"{model}/model.py:{_line('return lax.all_gather')}" in lines
    assert "all_to_all(x, 'n', split_axis=2, concat_axis=1, tiled=True)" in finding.how
    better = hlomem.jax.shard(f"{model}/model.py:make_exchanged", cache=model / "cache")
    assert not better.findings
    assert finding.got == pytest.approx(report.size - better.size, rel=0.02)


def test_the_plan_alone_promises_something(model: Path) -> None:
    told = hlomem.jax.shard(
        f"{model}/model.py:make_gathered", cache=model / "cache", is_tried=False
    )
    [finding] = told.findings
    assert finding.promised > 0
