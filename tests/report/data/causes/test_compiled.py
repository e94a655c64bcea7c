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
        ({"side": 64}, "sequence", "sequence 32 became 64 (arguments: "),
    ],
)
def test_steps_batch_and_grid_are_told_by_where_they_stand(
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


def _heat(steps: int = 32, side: int = 24) -> MemoryView:
    """The gradient of a loop that is run over nothing."""

    def misfit(kappa: Any, start: Any) -> Any:
        def step(u: Any, _: Any) -> Any:
            return jnp.sin(u + kappa * jnp.roll(u, 1, -1)), None

        return jnp.sum(jax.lax.scan(step, start, None, length=steps)[0] ** 2)

    return _compiled(jax.grad(misfit), _shape(side, side), _shape(4, side, side))


def test_steps_are_told_of_a_loop_that_is_run_over_nothing() -> None:
    assert _first(_heat(), _heat(80)) == ("length", "a loop of 32 steps became one of 80")


def test_both_sides_of_a_field_are_the_extent_of_an_example() -> None:
    kind, text = _first(_heat(), _heat(side=36))
    assert (kind, text[:32]) == ("sequence", "sequence 24 became 36 (arguments")


def _mixed(patches: int = 20, sides: int = 0, features: int = 24) -> MemoryView:
    """Layers that mix patches, whose number is a dimension of the model, too."""

    def loss(params: Any, images: Any) -> Any:
        x = images.reshape(8, patches, -1) @ params["stem"]
        x = x + jnp.swapaxes(jnp.tanh(jnp.swapaxes(x, 1, 2) @ params["mix"]) @ params["back"], 1, 2)
        return jnp.mean(jnp.tanh(x @ params["up"]) ** 2)

    params = {
        "stem": _shape(features, 32),
        "mix": _shape(patches, 48),
        "back": _shape(48, patches),
        "up": _shape(32, 64),
    }
    images = _shape(8, 4 * sides, 6 * sides, 1) if sides else _shape(8, patches, features)
    return _compiled(jax.grad(loss), params, images)


@pytest.mark.parametrize(
    ("before", "after", "kind", "text"),
    [
        ({}, {"patches": 30}, "sequence", "sequence 20 became 30 (arguments: images, params"),
        ({}, {"features": 48}, "width", "width 24 became 48 (arguments: images, params"),
        (
            {"patches": 16, "sides": 4},
            {"patches": 64, "sides": 8},
            "sequence",
            "sequence 16 became 32 (arguments: ",
        ),
    ],
)
def test_what_inputs_and_the_model_share_is_told_by_where_inputs_have_it(
    before: dict[str, int], after: dict[str, int], kind: str, text: str
) -> None:
    found = _first(_mixed(**before), _mixed(**after))
    assert (found[0], found[1][: len(text)]) == (kind, text)


def _convolved(kernel: int) -> MemoryView:
    def loss(kernels: Any, images: Any) -> Any:
        for each in kernels:
            dimensions = ("NHWC", "HWIO", "NHWC")
            images = jnp.tanh(
                jax.lax.conv_general_dilated(
                    images, each, (1, 1), "SAME", dimension_numbers=dimensions
                )
            )
        return jnp.sum(images)

    kernels = [_shape(kernel, kernel, 4, 16), _shape(kernel, kernel, 16, 16)]
    return _compiled(jax.grad(loss), kernels, _shape(2, 16, 16, 4))


def test_odd_extents_are_named_as_arguments_have_them() -> None:
    kind, text = _first(_convolved(3), _convolved(5))
    assert (kind, text[:17]) == ("width", "width 3 became 5 ")


def _headed(heads: int, width: int) -> MemoryView:
    def loss(params: Any, x: Any) -> Any:
        parts = jnp.einsum("bd,dhk->bhk", x, params["split"])
        return jnp.sum(jnp.tanh(jnp.einsum("bhk,hkd->bd", parts, params["join"])) ** 2)

    size = width // heads
    params = {"split": _shape(width, heads, size), "join": _shape(heads, size, width)}
    return _compiled(jax.grad(loss), params, _shape(256, width))


def test_a_width_is_named_by_the_whole_not_by_a_head() -> None:
    kind, text = _first(_headed(4, 64), _headed(4, 128))
    assert (kind, text[:20]) == ("width", "width 64 became 128 ")


def _trained(
    tokens: int = 65, layers: int = 2, parts: int = 1, chunks: int = 1, *, unroll: bool = False
) -> MemoryView:
    """A step whose gradients are accumulated, and whose loss is computed in chunks."""

    def logs(hidden: Any, embed: Any, labels: Any) -> Any:
        found = jax.nn.log_softmax(hidden @ embed.T)
        return jnp.sum(jnp.take_along_axis(found, labels[..., None], -1))

    def loss(params: Any, tokens: Any) -> Any:
        x, labels = params["embed"][tokens[:, :-1]], tokens[:, 1:]
        if unroll:
            for number in range(layers):
                up, down = params["up"][number], params["down"][number]
                x = x + jnp.tanh(x @ up) @ down
        else:
            stack = params["up"], params["down"]
            x = jax.lax.scan(lambda h, w: (h + jnp.tanh(h @ w[0]) @ w[1], None), x, stack)[0]
        if chunks == 1:
            return logs(x, params["embed"], labels)

        def chunk(total: Any, part: Any) -> Any:
            return total + jax.checkpoint(logs)(part[0], params["embed"], part[1]), None

        split = [jnp.stack(jnp.split(each, chunks, 1)) for each in (x, labels)]
        return jax.lax.scan(chunk, jnp.float32(0), tuple(split))[0]

    def step(params: Any, tokens: Any) -> Any:
        if parts == 1:
            return jax.grad(loss)(params, tokens)

        def add(total: Any, part: Any) -> Any:
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, part)), None

        zeros = jax.tree.map(jnp.zeros_like, params)
        return jax.lax.scan(add, zeros, tokens.reshape(parts, -1, tokens.shape[1]))[0]

    shapes = {
        "embed": _shape(512, 32),
        "up": _shape(layers, 32, 96),
        "down": _shape(layers, 96, 32),
    }
    return _compiled(step, shapes, _shape(8, tokens, dtype="int32"))


@pytest.mark.parametrize(
    ("before", "after", "kind", "text"),
    [
        ({}, {"parts": 4}, "loop", "runs in a loop (lax.scan at test_compiled.py:"),
        ({"parts": 2}, {}, "loop", "no longer runs in a loop (lax.scan at test_compiled.py:"),
        ({}, {"chunks": 8}, "loop", "runs in a loop (lax.scan at test_compiled.py:"),
        ({}, {"tokens": 97}, "sequence", "sequence 64 became 96 (arguments: tokens)"),
        ({"unroll": True}, {"unroll": True, "layers": 3}, "layers", "2 layers became 3 (the first"),
    ],
)
def test_loops_around_and_beside_others_are_told(
    before: dict[str, Any], after: dict[str, Any], kind: str, text: str
) -> None:
    found = _first(_trained(**before), _trained(**after))
    assert (found[0], found[1][: len(text)]) == (kind, text)


def test_a_loss_in_chunks_is_one_cause_with_its_recomputation() -> None:
    diff = build_diff(_trained(), _trained(chunks=8))
    assert [cause.kind for cause in diff.causes] == ["loop"]
    assert diff.causes[0].text.endswith(", recomputed in the backward pass")


def _restacked(*, is_list: bool) -> MemoryView:
    """Layers of a stacked argument in a scan, or of a list in a Python loop."""

    def loss(params: Any, x: Any) -> Any:
        if is_list:
            for weight in params["layers"]:
                x = jnp.tanh(x @ weight)
        else:
            x = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, params["layers"])[0]
        return jnp.sum((x @ params["out"]) ** 2)

    layers = [_shape(64, 64)] * 4 if is_list else _shape(4, 64, 64)
    return _compiled(jax.grad(loss), {"layers": layers, "out": _shape(64, 8)}, _shape(256, 64))


def test_stacked_arguments_that_become_a_list_are_no_new_arguments() -> None:
    diff = build_diff(_restacked(is_list=False), _restacked(is_list=True))
    assert [cause.kind for cause in diff.causes] == ["loop"]
    assert diff.causes[0].delta == diff.delta


def _rolled(environments: int = 64, *, repeats: int = 4) -> MemoryView:
    """Steps of environments, whose state is no model's, and updates in loops of one length."""

    def update(params: Any, env_state: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            return jnp.tanh(state @ params), state

        env_state, seen = jax.lax.scan(step, env_state, None, length=16)

        def improve(weight: Any, part: Any) -> Any:
            return weight - jax.grad(lambda w: jnp.mean((part @ w) ** 2))(weight), None

        def epoch(weight: Any, _: Any) -> Any:
            return jax.lax.scan(improve, weight, seen.reshape(repeats, -1, 32))[0], None

        return jax.lax.scan(epoch, params, None, length=4)[0], env_state

    return _compiled(update, _shape(32, 32), _shape(environments, 32))


def test_the_state_of_environments_is_a_batch() -> None:
    kind, text = _first(_rolled(), _rolled(256))
    assert (kind, text[:42]) == ("batch", "batch 64 became 256 (arguments: env_state)")


def test_one_of_two_loops_of_a_length_has_more_steps() -> None:
    assert _first(_rolled(), _rolled(repeats=8)) == ("length", "a loop of 4 steps became one of 8")


def _voted(members: int) -> MemoryView:
    """Several models at once, of which no single one is computed with."""

    def loss(params: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(jnp.tanh(x @ params["up"]) @ params["down"]) ** 2)

    shapes = {"up": _shape(members, 32, 64), "down": _shape(members, 64, 32)}
    return _compiled(jax.vmap(jax.grad(loss), (0, None)), shapes, _shape(128, 32))


def test_members_of_an_ensemble_are_no_layers() -> None:
    kind, text = _first(_voted(2), _voted(4))
    assert (kind, text[:17]) == ("width", "width 2 became 4 ")


def _grouped(heads: int) -> MemoryView:
    """A cache with a dimension of heads, of which weights have only the product."""

    def decode(params: Any, cache: Any, x: Any) -> Any:
        new = (x @ params["kv"]).reshape(4, 1, heads, 16)
        cache = jax.lax.dynamic_update_slice(cache, new, (0, 3, 0, 0))
        return cache, jnp.einsum("bshd,bd->bsh", cache, x[:, :16])

    params = {"kv": _shape(64, heads * 16)}
    return _compiled(decode, params, _shape(4, 256, heads, 16), _shape(4, 64))


def test_heads_of_a_cache_and_of_weights_are_one_width() -> None:
    kind, text = _first(_grouped(8), _grouped(2))
    assert (kind, text[:17]) == ("width", "width 8 became 2 ")
