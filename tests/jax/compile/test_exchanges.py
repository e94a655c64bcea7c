"""All-to-alls that are written as a gather and a slice: found in a trace, and traced as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hlomem.jax.compile.exchanged import exchanged
from hlomem.jax.compile.exchanges import find_exchanges

if TYPE_CHECKING:
    from collections.abc import Callable

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
lax: Any = jax.lax
jnp: Any = jax.numpy
P: Any = jax.sharding.PartitionSpec

SHAPE = (2, 8, 8, 3)
"""Of the part of each of four devices."""


def _tiled(x: Any) -> Any:
    whole = lax.all_gather(x, "sp", axis=1, tiled=True)
    return lax.dynamic_slice_in_dim(whole, lax.axis_index("sp") * 2, 2, axis=2)


def _taken_by_number(x: Any) -> Any:
    whole = lax.all_gather(x, "sp", axis=1).reshape(2, 32, 4, 2, 3)
    return jnp.take(whole, lax.axis_index("sp"), axis=2)


def _turned(x: Any) -> Any:
    whole = lax.all_gather(x, "sp", axis=0).transpose(3, 0, 2, 1, 4)
    return whole.reshape(4, 2, 32, 2, 3).astype(jnp.bfloat16)[lax.axis_index("sp")]


def _of_several(x: Any) -> Any:
    whole = lax.all_gather(x, "sp", axis=1, tiled=True)[..., 1:]
    one, other = jnp.split(whole, 2, axis=3)
    at = lax.axis_index("sp") * 2
    parts = [lax.dynamic_slice_in_dim(value, at, 2, axis=2) for value in (one, other)]
    return parts[1] - 2 * parts[0]


def _recomputed(x: Any) -> Any:
    return jax.checkpoint(_tiled)(x) * 2


def _looped(x: Any) -> Any:
    start = jnp.ones((2, 32, 2, 3)) + x.sum()
    return lax.fori_loop(0, 2, lambda _, sums: sums + _tiled(x * sums.mean()), start)


def _also_read_whole(x: Any) -> Any:
    whole = lax.all_gather(x, "sp", axis=1, tiled=True)
    part = lax.dynamic_slice_in_dim(whole, lax.axis_index("sp") * 2, 2, axis=2)
    return part + whole.sum()


def _part_of_another(x: Any) -> Any:
    whole = lax.all_gather(x, "sp", axis=1, tiled=True)
    return lax.dynamic_slice_in_dim(whole, (3 - lax.axis_index("sp")) * 2, 2, axis=2)


def _same_part_for_all(x: Any) -> Any:
    whole = lax.all_gather(x, "sp", axis=1, tiled=True)
    return lax.dynamic_slice_in_dim(whole, 2, 2, axis=2)


def _own_part_again(x: Any) -> Any:
    whole = lax.all_gather(x, "sp", axis=1, tiled=True)
    return lax.dynamic_slice_in_dim(whole, lax.axis_index("sp") * 8, 8, axis=1)


FOUND = (_tiled, _taken_by_number, _turned, _of_several, _recomputed, _looped)
OTHERS = (_also_read_whole, _part_of_another, _same_part_for_all, _own_part_again)


def _traced(function: Callable[[Any], Any]) -> Any:
    mesh = jax.sharding.AbstractMesh((4,), ("sp",), (jax.sharding.AxisType.Auto,))
    mapped = jax.shard_map(
        function, mesh=mesh, in_specs=P(None, "sp"), out_specs=P(None, None, "sp")
    )
    x = jax.ShapeDtypeStruct((SHAPE[0], 4 * SHAPE[1], *SHAPE[2:]), "float32")
    return jax.make_jaxpr(jax.grad(lambda x: mapped(x).astype("float32").sum()))(x)


@pytest.mark.parametrize("function", FOUND)
def test_the_part_with_the_own_number_is_found(function: Callable[[Any], Any]) -> None:
    [found] = find_exchanges(_traced(function))
    assert found.axes == ("sp",)
    assert found.shape == SHAPE
    assert found.gathered != found.taken
    assert found.size == 4 * 4 * 2 * 8 * 8 * 3


@pytest.mark.parametrize("function", OTHERS)
def test_other_parts_and_the_whole_are_not(function: Callable[[Any], Any]) -> None:
    assert not find_exchanges(_traced(function))


@pytest.mark.parametrize("function", FOUND)
def test_an_all_to_all_computes_the_same(function: Callable[[Any], Any]) -> None:
    lines = {one.gathered for one in find_exchanges(_traced(function))}
    other = exchanged(function, lines)
    text = str(_traced(other))
    assert "all_to_all" in text
    assert "all_gather[" not in text
    x = jnp.arange(4.0 * 2 * 8 * 8 * 3).reshape(4, *SHAPE)
    before, after = [jax.vmap(one, axis_name="sp")(x) for one in (function, other)]
    assert (before == after).all()


def test_the_number_of_a_device_may_be_computed_outside_the_loop() -> None:
    def mapped(x: Any) -> Any:
        at = lax.axis_index("sp") * 2

        def body(carry: Any, part: Any) -> tuple[Any, Any]:
            whole = lax.all_gather(part, "sp", axis=1, tiled=True)
            return carry, lax.dynamic_slice_in_dim(whole, at, 2, axis=2)

        return lax.scan(body, 0.0, jnp.stack([x, x]))[1].sum(0)

    assert len(find_exchanges(_traced(mapped))) == 1
