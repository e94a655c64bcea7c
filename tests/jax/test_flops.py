"""The matrix products of a traced program, on all devices together."""

from __future__ import annotations

from typing import Any

import pytest

from hlomem.jax.flops import count_flops

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
P: Any = jax.sharding.PartitionSpec

PRODUCT = 2 * 16 * 32 * 64


def _traced(function: Any) -> Any:
    given = jax.ShapeDtypeStruct((16, 32), "float32"), jax.ShapeDtypeStruct((32, 64), "float32")
    return jax.make_jaxpr(function)(*given)


def test_a_product_counts_as_often_as_it_runs() -> None:
    assert count_flops(_traced(lambda x, w: x @ w)).total == PRODUCT
    again = lambda x, w: jax.lax.scan(lambda _, __: (x @ w, None), x @ w, None, 9)[0]  # noqa: E731
    assert count_flops(_traced(again)).total == 10 * PRODUCT


@pytest.mark.parametrize(("spec", "times"), [(P("n"), 1), (P(), 4)])
def test_a_product_of_a_shard_map_counts_on_each_device(spec: Any, times: int) -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("n",), (jax.sharding.AxisType.Auto,))
    options = {"mesh": mesh, "in_specs": (spec, P()), "out_specs": spec, "check_vma": False}
    mapped = jax.shard_map(lambda x, w: x @ w, **options)
    assert count_flops(_traced(mapped)).total == times * PRODUCT


def test_a_loop_of_unknown_length_is_said() -> None:
    loop = lambda x, w: jax.lax.while_loop(lambda y: y[0, 0] < 9, lambda y: y + 1, x @ w)  # noqa: E731
    assert count_flops(_traced(loop)) == (PRODUCT, True)
