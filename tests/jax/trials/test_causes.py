"""Findings at the line that decides, and doubts that a compile confirms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import hlomem.jax

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.report.data.sharding.finding import ShardingFinding

pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")

pytestmark = pytest.mark.usefixtures("eight_devices")

MODEL = '''"""Mistakes, written in different ways."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
STAGES = {
    "rows": P("x", None),
    "all": P(None, None),
    "columns": P(None, "x"),
}


def _mesh(devices):
    return Mesh(np.array(devices), ("x",))


def make_unread(devices):
    mesh = _mesh(devices)
    split = NamedSharding(mesh, P("x", None))

    def waves(scale, ids):
        a = jnp.sin(scale * jnp.arange(4096.0))[:, None] * jnp.ones(1024)
        b = jnp.cos(scale * jnp.arange(4096.0))[:, None] * jnp.ones(1024)
        for one in (a, b):
            jax.lax.with_sharding_constraint(one, split)
        return (jnp.sort(a, axis=1) * jnp.sort(b, axis=1)).sum(axis=1)[ids]

    scale = S((), "float32", sharding=NamedSharding(mesh, P()))
    ids = S((8,), "int32", sharding=NamedSharding(mesh, P("x")))
    return jax.jit(waves), (scale, ids)


def make_stages(devices):
    mesh = _mesh(devices)
    put = lambda x, spec: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

    def transform(x):
        x = put(jnp.sort(x, axis=1), STAGES["rows"])
        x = put(x, STAGES["all"])
        x = put(x, STAGES["columns"])
        return jnp.sort(x, axis=0)

    return jax.jit(transform), (S((2048, 2048), "float32", sharding=NamedSharding(mesh, P("x"))),)


def make_kept(devices):
    mesh = _mesh(devices)
    split, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())

    def keep(tree):
        return jax.tree.map(lambda one: S(one.shape, one.dtype, sharding=whole), tree)

    def cut(tree):
        return jax.tree.map(lambda one: S(one.shape, one.dtype, sharding=split), tree)

    params = {"w": S((1024, 1024), "float32"), "v": S((1024, 1024), "float32")}
    state = {
        "params": cut(params),
        "ema": keep(params),
        "step": keep(S((), "int32")),
    }

    def update(state):
        params = jax.tree.map(lambda w: w * 0.9, state["params"])
        ema = jax.tree.map(lambda e, w: 0.99 * e + 0.01 * w, state["ema"], params)
        return {"params": params, "ema": ema, "step": state["step"] + 1}

    return jax.jit(update, donate_argnums=0), (state,)


def make_donated(devices):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
    stored = NamedSharding(mesh, P("x", "y"))
    spec = P("x")

    def insert(memory, row):
        memory = jax.lax.dynamic_update_slice(memory, row[None], (0, 0))
        return jax.lax.with_sharding_constraint(memory * 2, stored)

    memory = S((4096, 1024), "float32", sharding=NamedSharding(mesh, spec))
    row = S((1024,), "float32", sharding=NamedSharding(mesh, P("y")))
    return jax.jit(insert, donate_argnums=0), (memory, row)
'''

LOGICAL = '''"""Rules of logical axes in force while `jax.jit` is called, not while it traces."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

RULES = (("batch", "x"), ("length", "y"))


def make(devices):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))

    def step(weights, ids):
        x = nn.with_logical_constraint(weights[ids], ("batch", "length", None))
        return jnp.sort(jnp.sort(x, axis=2), axis=2).sum(axis=2)

    weights = jax.ShapeDtypeStruct((64, 512), "float32", sharding=NamedSharding(mesh, P()))
    ids = jax.ShapeDtypeStruct((64, 256), "int32", sharding=NamedSharding(mesh, P("x")))
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        return jax.jit(step), (weights, ids)
'''


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("causes")
    (folder / "model.py").write_text(MODEL)
    return folder


def _first(model: Path, name: str) -> ShardingFinding:
    report = hlomem.jax.shard(f"{model}/model.py:{name}", cache=model / "cache")
    return report.findings[0]


def _at(model: Path, text: str) -> str:
    return f"{model}/model.py:{MODEL[: MODEL.index(text)].count(chr(10)) + 1}"


def test_a_constraint_that_nothing_reads_is_compiled_as_if_it_were(model: Path) -> None:
    first = _first(model, "make_unread")
    assert first.kind == "dropped"
    assert first.source == _at(model, "            jax.lax.with_sharding_constraint(one")
    # Seven eighths of an array of 16 MiB, at least.
    assert first.got is not None
    assert first.got >= 14 << 20
    assert "what follows reads this" in first.how


def test_a_stage_between_two_that_split_more_is_left_out(model: Path) -> None:
    first = _first(model, "make_stages")
    assert first.source == _at(model, '        x = put(x, STAGES["all"])')
    assert first.got is not None
    assert first.got >= 8 << 20


def test_of_several_calls_of_a_helper_the_one_at_fault_is_told(model: Path) -> None:
    first = _first(model, "make_kept")
    assert first.source == _at(model, '        "ema": keep')
    # Seven eighths of two arrays of 4 MiB.
    assert first.got is not None
    assert first.got >= 7 << 20


def test_a_donated_argument_that_is_split_less_than_its_result_is_at_fault(model: Path) -> None:
    first = _first(model, "make_donated")
    assert first.kind == "donated"
    assert first.change.arguments == {"memory": "P('x', 'y')"}
    assert first.source == _at(model, "    memory = S((4096, 1024)")


def test_a_constraint_whose_rules_are_gone_when_it_is_traced_is_left_out(tmp_path: Path) -> None:
    pytest.importorskip("flax.linen")
    (tmp_path / "logical.py").write_text(LOGICAL)
    report = hlomem.jax.shard(f"{tmp_path}/logical.py:make", cache=tmp_path / "cache")
    first = report.findings[0]
    line = LOGICAL[: LOGICAL.index("        x = nn.with_logical")].count("\n") + 1
    assert (first.kind, first.source) == ("dropped", f"{tmp_path}/logical.py:{line}")
    assert "P('x', 'y', None)" in first.title
    # Half of an array of 8 MiB on each device, at least.
    assert first.got is not None
    assert first.got >= 4 << 20
