"""The bytes that a traced program keeps for its backward pass."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from hlomem.jax.probes.kept import kept_bytes

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
jnp: Any = jax.numpy
keep: Any = pytest.importorskip("jax.ad_checkpoint").checkpoint_name

WEIGHT, ACTIVATION = 4 * 64 * 64, 4 * 8 * 64
"""Bytes."""


def _layer(x: Any, w: Any) -> Any:
    w = keep(w.astype(jnp.bfloat16), "w")
    return jnp.tanh(keep(jnp.tanh(x @ w.astype(x.dtype)), "x"))


def _trace(names: tuple[str, ...], *, is_scan: bool) -> Any:
    policy = jax.checkpoint_policies.save_only_these_names(*names)
    layer = functools.partial(jax.checkpoint, policy=policy)(_layer)

    def loss(ws: Any, x: Any) -> Any:
        if is_scan:
            return jnp.sum(jax.lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0])
        return jnp.sum(functools.reduce(layer, ws, x))

    stack, one = (jax.ShapeDtypeStruct((*of, 64, 64), "float32") for of in ((4,), ()))
    x = jax.ShapeDtypeStruct((8, 64), "float32")
    return jax.make_jaxpr(jax.grad(loss))(stack if is_scan else [one] * 4, x)


@pytest.mark.parametrize("is_scan", [False, True])
def test_weights_that_a_policy_keeps_are_kept_as_they_are_placed(is_scan: bool) -> None:
    without = kept_bytes(_trace(("x",), is_scan=is_scan))
    kept = kept_bytes(_trace(("x", "w"), is_scan=is_scan))
    # Four weights in half precision, in a scan as one stack of them, too.
    assert kept.placed - without.placed >= 4 * WEIGHT // 2
    assert kept.total - without.total >= 4 * WEIGHT // 2


@pytest.mark.parametrize("is_scan", [False, True])
def test_activations_are_not_kept_as_they_are_placed(is_scan: bool) -> None:
    without = kept_bytes(_trace((), is_scan=is_scan))
    kept = kept_bytes(_trace(("x",), is_scan=is_scan))
    assert kept.placed == without.placed
    assert kept.total - without.total >= 4 * ACTIVATION


def test_a_program_without_a_gradient_keeps_nothing() -> None:
    traced = jax.make_jaxpr(lambda x: jnp.tanh(x @ x))(jnp.zeros((8, 8)))
    assert kept_bytes(traced) == (0, 0)
