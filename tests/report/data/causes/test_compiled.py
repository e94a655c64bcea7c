"""Changes to a function, compiled by the JAX that is here, are told by `diff` for what they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import pytest

import hlomem.jax
from hlomem.report.data.diff import Diff, build_diff
from hlomem.report.data.memory import MemoryView

jax: Any = pytest.importorskip("jax", reason="jax is not installed")
jnp: Any = pytest.importorskip("jax.numpy")


def _shape(*dimensions: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(dimensions, dtype)


def _compiled(function: Callable[..., Any], *arguments: Any, **jit: Any) -> MemoryView:
    found: MemoryView = hlomem.jax.memory(function, *arguments, jit=jit).memory
    return found


def _causes(diff: Diff) -> list[tuple[str, str]]:
    return [(cause.kind, cause.text) for cause in diff.causes]


def test_arguments_of_another_type_are_named_by_their_tree() -> None:
    def network(params: Any, x: Any) -> Any:
        for name in sorted(params):
            x = jnp.tanh(x @ params[name])
        return x

    def layers(dtype: str) -> Any:
        return {f"l{i}": _shape(128, 128, dtype=dtype if i else "float32") for i in range(8)}

    x = _shape(64, 128)
    diff = build_diff(
        _compiled(network, layers("float32"), x), _compiled(network, layers("bfloat16"), x)
    )
    words = "f32 became bf16 (arguments: params (7 of 8 leaves)), in 7 buffers"
    assert _causes(diff) == [("dtype", words)]


def test_results_in_another_layout_cost_their_copies() -> None:
    layout = pytest.importorskip("jax.experimental.layout")

    def function(x: Any) -> Any:
        return jnp.tanh(x) + 1, x * 2

    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    columns_first = layout.Format(layout.Layout((1, 0)), device)
    x = _shape(512, 256)
    diff = build_diff(_compiled(function, x), _compiled(function, x, out_shardings=columns_first))
    words = "another layout of results: f32[512,256]{1,0} became f32[512,256]{0,1} and 1 more"
    assert _causes(diff) == [("layout", words)]
    assert diff.causes[0].delta == diff.delta == 512 * 256 * 4


@lru_cache
def _checkpointed(policy: str) -> MemoryView:
    """The gradient of a stack of layers that keeps what a policy says."""

    @partial(jax.checkpoint, policy=getattr(jax.checkpoint_policies, policy))
    def block(hidden: Any, weight: Any) -> Any:
        return jnp.sin(jnp.tanh(hidden @ weight) @ weight), None

    def loss(weights: Any, x: Any) -> Any:
        return jnp.sum(jax.lax.scan(block, x, weights)[0])

    return _compiled(jax.grad(loss), _shape(6, 128, 128), _shape(256, 128))


def test_a_checkpoint_that_keeps_more_says_what() -> None:
    few, more = _checkpointed("nothing_saveable"), _checkpointed("dots_saveable")
    [kept] = build_diff(few, more).causes
    [dropped] = build_diff(more, few).causes
    assert kept.text.startswith("kept, no longer recomputed: dot_general (jax.checkpoint, ")
    assert dropped.text.startswith("recomputed in the backward pass, no longer kept: dot_general ")
    assert kept.delta == -dropped.delta == 6 * 2 * 256 * 128 * 4


def test_arguments_under_other_names_are_compared_by_number() -> None:
    def one(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w) @ w

    def other(a: Any, b: Any) -> Any:
        return jnp.tanh(a @ b) @ b

    weight = _shape(256, 256)
    diff = build_diff(
        _compiled(one, _shape(64, 256), weight), _compiled(other, _shape(128, 256), weight)
    )
    assert ("batch", "batch 64 became 128 (arguments: a), in 1 buffer") in _causes(diff)
    assert sum(cause.delta for cause in diff.causes) == diff.delta


def test_an_argument_of_another_rank_is_larger_and_no_more_is_said() -> None:
    def function(x: Any) -> Any:
        return jnp.tanh(x) @ jnp.ones((256, 4))

    diff = build_diff(_compiled(function, _shape(64, 256)), _compiled(function, _shape(4, 64, 256)))
    assert {cause.kind for cause in diff.causes} == {"line"}
    assert ("line", "(arguments): 1 larger") in _causes(diff)


def test_a_dimension_inside_is_told_where_no_argument_changed() -> None:
    def function(count: int, x: Any) -> Any:
        return jnp.sum(jnp.sin(x[:count]) @ x[:count].T)

    x = _shape(512, 256)
    diff = build_diff(_compiled(partial(function, 64), x), _compiled(partial(function, 128), x))
    words = "likely dimension 64 became 128 in what is computed"
    assert _causes(diff) == [("dimension", words)]
