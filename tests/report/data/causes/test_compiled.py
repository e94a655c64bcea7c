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


def _first(before: MemoryView, after: MemoryView) -> tuple[str, str]:
    """The first cause; all of them add up to the difference."""
    diff = build_diff(before, after)
    assert sum(cause.delta for cause in diff.causes) == diff.delta
    return diff.causes[0].kind, diff.causes[0].text


def _adapted(layers: int) -> MemoryView:
    """A scan over stacked weights under names that tell nothing."""

    def loss(adapters: Any, base: Any, x: Any) -> Any:
        def block(x: Any, part: Any) -> Any:
            base, adapter = part
            return jnp.tanh(x @ base["q"] + (x @ adapter["a"]) @ adapter["b"]), None

        return jnp.sum(jax.lax.scan(block, x, (base, adapters))[0] ** 2)

    base = {"q": _shape(layers, 128, 128)}
    adapters = {"a": _shape(layers, 128, 4), "b": _shape(layers, 4, 128)}
    return _compiled(jax.grad(loss), adapters, base, _shape(64, 128))


def test_stacked_weights_are_layers_whatever_they_are_called() -> None:
    kind, text = _first(_adapted(12), _adapted(6))
    assert (kind, text[:22]) == ("layers", "12 layers became 6 (th")


def _wave(steps: int = 64, shots: int = 4, side: int = 32) -> MemoryView:
    """The gradient of a loop over time, with respect to a square field."""

    def misfit(field: Any, source: Any, seen: Any) -> Any:
        def step(u: Any, kick: Any) -> Any:
            u = jnp.tanh(u + field * jnp.roll(u, 1, -1) + kick[:, None, None])
            return u, u[:, 0, ::8]

        start = jnp.zeros((shots, side, side))
        return jnp.sum((jax.lax.scan(step, start, source)[1] - seen) ** 2)

    arguments = _shape(side, side), _shape(steps, shots), _shape(steps, shots, side // 8)
    return _compiled(jax.grad(misfit), *arguments)


@pytest.mark.parametrize(
    ("changed", "kind", "text"),
    [
        ({"steps": 32}, "length", "a loop of 64 steps became one of 32 (run over "),
        ({"shots": 16}, "batch", "batch 4 became 16 (arguments: "),
        ({"side": 64}, "width", "width 32 became 64 (arguments: "),
    ],
)
def test_steps_batch_and_width_are_told_by_where_they_stand(
    changed: dict[str, int], kind: str, text: str
) -> None:
    found = _first(_wave(), _wave(**changed))
    assert (found[0], found[1][: len(text)]) == (kind, text)


def _cached(is_carried: bool) -> MemoryView:
    """A decoding step whose layers update a cache, as xs and ys or in the carry."""

    def update(x: Any, weight: Any, pages: Any) -> Any:
        x = jnp.tanh(x @ weight)
        return x, pages.at[0].set(x)

    def decode(weights: Any, pages: Any, x: Any) -> Any:
        def in_place(number: Any, state: Any) -> Any:
            x, pages = state
            x, page = update(x, weights[number], pages[number])
            return x, pages.at[number].set(page)

        def stack(x: Any, part: Any) -> Any:
            return update(x, *part)

        def one(state: Any, _: Any) -> Any:
            x, pages = state
            if is_carried:
                return jax.lax.fori_loop(0, 6, in_place, (x, pages)), None
            return jax.lax.scan(stack, x, (weights, pages)), None

        return jax.lax.scan(one, (x, pages), None, length=4)[0]

    return _compiled(decode, _shape(6, 64, 64), _shape(6, 512, 64), _shape(64), donate_argnums=1)


def test_a_cache_that_moves_into_the_carry_is_a_cause() -> None:
    stacked, carried = _cached(is_carried=False), _cached(is_carried=True)
    kind, text = _first(stacked, carried)
    assert (kind, text[:42]) == ("carry", "pages: updated in the carry of a loop at t")
    kind, text = _first(carried, stacked)
    assert (kind, text[:46]) == ("carry", "pages: no longer updated in the carry of a loo")


def _averaged(has_ema: bool) -> MemoryView:
    def step(state: Any, x: Any) -> Any:
        new = {"params": {n: w + jnp.tanh(x @ w).sum() for n, w in state["params"].items()}}
        if has_ema:
            new["ema"] = {n: 0.9 * w + new["params"][n] for n, w in state["ema"].items()}
        return new

    weights = {"a": _shape(256, 256), "b": _shape(256, 128)}
    state = {"params": weights} | ({"ema": weights} if has_ema else {})
    return _compiled(step, state, _shape(8, 256))


def test_arguments_that_came_or_went_are_named_by_their_tree() -> None:
    few, many = _averaged(has_ema=False), _averaged(has_ema=True)
    gone, new = _first(many, few), _first(few, many)
    assert gone == ("arguments", "state['ema'] is gone: 2 arrays among the arguments")
    assert new == ("arguments", "state['ema'] is new: 2 arrays among the arguments")
