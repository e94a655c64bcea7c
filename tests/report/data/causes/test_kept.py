"""What another policy, or another optimizer, keeps is told, compiled by the JAX that is here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

import hlomem.jax
from hlomem.report.data.diff import build_diff
from hlomem.report.data.memory import MemoryView

jax: Any = pytest.importorskip("jax", reason="jax is not installed")
jnp: Any = pytest.importorskip("jax.numpy")


def _shape(*dimensions: int) -> Any:
    return jax.ShapeDtypeStruct(dimensions, "float32")


def _compiled(function: Any, *arguments: Any) -> MemoryView:
    found: MemoryView = hlomem.jax.memory(function, *arguments).memory
    return found


def _named(*saved: str) -> MemoryView:
    """The gradient of layers of which the checkpoint keeps values of some names."""
    name = import_module("jax.ad_checkpoint").checkpoint_name
    policy = jax.checkpoint_policies.save_only_these_names(*saved)

    def block(x: Any, w: Any) -> Any:
        hidden = name(jax.nn.gelu(x @ w["up"]), "hidden")
        return x + jnp.sin(hidden @ w["down"])

    def loss(params: Any, x: Any) -> Any:
        again = jax.checkpoint(block, policy=policy)
        return jnp.sum(jax.lax.scan(lambda x, w: (again(x, w), None), x, params)[0] ** 2)

    weights = {"up": _shape(8, 32, 128), "down": _shape(8, 128, 32)}
    return _compiled(jax.grad(loss), weights, _shape(512, 32))


def test_values_that_a_policy_keeps_are_told_though_no_operation_changed() -> None:
    [cause, *_] = build_diff(_named(), _named("hidden")).causes
    assert cause.kind == "recomputation"
    assert cause.text.startswith("likely kept for the backward pass, ")
    [back, *_] = build_diff(_named("hidden"), _named()).causes
    assert back.text.startswith("likely no longer kept for the backward pass, ")


def _optimized(*, is_wrapped: bool) -> MemoryView:
    """A step whose moments lie in a tree of their own, with sums beside them or not."""

    def step(params: Any, opt_state: Any, x: Any) -> Any:
        grads = jax.grad(lambda p: jnp.sum(jnp.tanh(x @ p["w"]) ** 2))(params)
        inner = opt_state["inner"] if is_wrapped else opt_state
        inner = {"mu": jax.tree.map(lambda m, g: 0.9 * m + g, inner["mu"], grads)}
        new = jax.tree.map(jnp.subtract, params, inner["mu"])
        if not is_wrapped:
            return new, inner
        return new, {"inner": inner, "sums": jax.tree.map(jnp.add, opt_state["sums"], grads)}

    params = {"w": _shape(256, 256)}
    inner = {"mu": params}
    state = {"inner": inner, "sums": params} if is_wrapped else inner
    return _compiled(step, params, state, _shape(8, 256))


def test_arguments_that_moved_in_their_tree_are_not_new() -> None:
    [cause] = build_diff(_optimized(is_wrapped=False), _optimized(is_wrapped=True)).causes
    assert cause.text == "opt_state['sums'] is new: 1 array among the arguments"


def _paired(depth: int) -> MemoryView:
    """As many layers down as up."""

    def loss(params: Any, x: Any) -> Any:
        for way in ("down", "up"):
            for number in range(depth):
                x = jnp.tanh(x @ params[f"{way}_{number}"])
        return jnp.sum(x)

    names = [f"{way}_{number}" for way in ("down", "up") for number in range(depth)]
    return _compiled(jax.grad(loss), dict.fromkeys(names, _shape(64, 64)), _shape(256, 64))


def test_layers_that_went_together_are_one_cause() -> None:
    [cause] = build_diff(_paired(3), _paired(2)).causes
    assert (cause.kind, cause.text) == ("layers", "3 layers became 2: down 2, up 2 are gone")
