"""Functions that only place what they are given, by the trace of a program."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from hlomem.jax.compile.decisions import Decisions, placing_functions
from hlomem.jax.compile.origins import Origins
from hlomem.report.data.sharding.decision import OtherDecision

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
jnp: Any = jax.numpy
P: Any = jax.sharding.PartitionSpec


def _gathered(w: Any) -> Any:
    return jax.lax.all_gather(w.astype(jnp.bfloat16), "n", axis=0, tiled=True)


def _body(x: Any, w: Any) -> tuple[Any, None]:
    return jnp.tanh(x @ _gathered(w)), None


def _block(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


def _calling(x: Any, w: Any) -> tuple[Any, None]:
    return jax.checkpoint(_block)(x, _gathered(w)), None


@pytest.mark.parametrize("body", [_body, _calling])
def test_a_gather_places_though_its_gradient_is_a_sum(body: Any) -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("n",), (jax.sharding.AxisType.Auto,))
    specs = (P(None, "n"), P("n"))
    layers = lambda ws, x: jax.lax.scan(body, x, ws)[0]  # noqa: E731 - what is mapped
    mapped = jax.shard_map(layers, mesh=mesh, in_specs=specs, out_specs=P("n"))
    loss = jax.grad(lambda ws, x: mapped(ws, x).astype("float32").sum())
    traced = jax.make_jaxpr(loss)(jnp.zeros((3, 8, 8)), jnp.zeros((8, 8), "bfloat16"))
    assert placing_functions(traced) == (f"{__file__}::_gathered",)


def test_arguments_that_are_none_have_no_part_in_a_shard_map() -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("n",), (jax.sharding.AxisType.Auto,))
    decisions = Decisions(Origins())
    noting = decisions._mapping(jax.shard_map)
    mapped = noting(lambda x, _: x + 1, mesh=mesh, in_specs=(P("n"), P()), out_specs=P("n"))
    jax.make_jaxpr(lambda x: mapped(x, None))(jnp.zeros(8))
    [noted] = decisions.noted
    assert (noted.shapes, noted.specs) == (((8,),), ("P('n')",))


def test_a_loop_begins_with_arrays_as_another_decision_says() -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("n",), (jax.sharding.AxisType.Auto,))

    origins = Origins()
    origins.meshes.append(mesh)
    state = {"count": jnp.zeros(()), "x": jnp.zeros((8, 2))}
    others: list[OtherDecision] = []
    texts = []
    for _ in range(2):  # from the same line
        decisions = Decisions(origins, others)
        scan = decisions._scanning(jax.lax.scan)
        loop = functools.partial(scan, lambda it, _: (it, it["x"]), xs=None, length=3)
        texts.append(str(jax.make_jaxpr(lambda state: loop(init=state))(state)))  # noqa: B023
        [noted] = decisions.noted
        assert noted.shapes == ((), (8, 2))
        others.append(OtherDecision(decision=noted, specs=("", "P('n')")))
    assert [text.count("sharding_constraint") for text in texts] == [0, 1]
    assert texts[1].index("sharding_constraint") < texts[1].index("scan[")
