"""Functions that only place what they are given, by the trace of a program."""

from __future__ import annotations

from typing import Any

import pytest

from hlomem.jax.compile.decisions import placing_functions

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
jnp: Any = jax.numpy
P: Any = jax.sharding.PartitionSpec


def _gathered(w: Any) -> Any:
    return jax.lax.all_gather(w.astype(jnp.bfloat16), "n", axis=0, tiled=True)


def _body(x: Any, w: Any) -> tuple[Any, None]:
    return jnp.tanh(x @ _gathered(w)), None


def test_a_gather_places_though_its_gradient_is_a_sum() -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("n",), (jax.sharding.AxisType.Auto,))
    specs = (P(None, "n"), P("n"))
    layers = lambda ws, x: jax.lax.scan(_body, x, ws)[0]  # noqa: E731 - what is mapped
    mapped = jax.shard_map(layers, mesh=mesh, in_specs=specs, out_specs=P("n"))
    loss = jax.grad(lambda ws, x: mapped(ws, x).astype("float32").sum())
    traced = jax.make_jaxpr(loss)(jnp.zeros((3, 8, 8)), jnp.zeros((8, 8), "bfloat16"))
    assert placing_functions(traced) == (f"{__file__}::_gathered",)
