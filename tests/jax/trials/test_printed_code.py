"""Code that advice prints runs as it is printed, and computes the same."""

from __future__ import annotations

from typing import Any

import pytest

from hlomem.advice.code import OFFLOADED, OFFLOADED_IMPORT, SCAN_IN_CHUNKS, wrap_layers
from hlomem.advice.functions import LayerFunction
from hlomem.advice.rules import carry, logits, narrow

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
jnp: Any = pytest.importorskip("jax.numpy")
np: Any = pytest.importorskip("numpy")


def _run(code: str, **names: Any) -> dict[str, Any]:
    exec(compile(code, "advice", "exec"), names)  # noqa: S102 - ours, as it is printed
    return names


def _step(carry: Any, x: Any) -> Any:
    return jnp.sin(carry + x), carry * x


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_in_chunks_is_the_scan(reverse: bool) -> None:
    chunked = _run(f"import jax\n{SCAN_IN_CHUNKS}")["scan_in_chunks"]
    xs = jnp.linspace(0.0, 1.0, 60)

    def of(scan: Any) -> Any:
        def total(x0: Any) -> Any:
            last, ys = scan(_step, x0, xs, reverse=reverse)
            return last + ys.sum()

        return jax.value_and_grad(total)(0.3)

    assert np.allclose(of(chunked), of(jax.lax.scan), rtol=1e-6)
    assert chunked(lambda y, _: (2 * y, y), 1.0, length=8)[1].shape == (8,)


def test_an_offloaded_body_is_traced() -> None:
    offloaded = _run(f"import jax\n{OFFLOADED_IMPORT}{OFFLOADED}")["offloaded"]
    xs = jnp.linspace(0.0, 1.0, 8)
    text = str(jax.make_jaxpr(jax.grad(lambda x: jax.lax.scan(offloaded(_step), x, xs)[0]))(0.5))
    assert "remat" in text


@pytest.mark.parametrize("positions", [(4, 1023), (2, 64), (60,)])
def test_a_cross_entropy_in_chunks_is_the_same(positions: tuple[int, ...]) -> None:
    axis, count = logits._split(positions)
    assert count
    assert positions[axis] % count == 0
    keys = jax.random.split(jax.random.key(0), 2)
    hidden = jax.random.normal(keys[0], (*positions, 8))
    head = jax.random.normal(keys[1], (8, 16))
    labels = jnp.arange(int(np.prod(positions))).reshape(positions) % 16
    code = logits._HOW.format(axis=axis, count=count, next=axis + 1)
    total = _run(code, hidden=hidden, head=head, labels=labels)["total"]
    whole = jax.nn.log_softmax(hidden @ head)
    assert np.allclose(total, -jnp.take_along_axis(whole, labels[..., None], -1).sum(), rtol=1e-5)


def test_a_cache_is_carried() -> None:
    cache, weights = jnp.zeros((3, 4)), jnp.arange(3.0)

    def attend(x: Any, w: Any, kv: Any) -> Any:
        return x + w, kv + x

    made = _run(carry._HOW, cache=cache, weights=weights, attend=attend, x=jnp.ones(4))
    assert np.allclose(made["cache"][:, 0], [1, 1, 2])


def test_parameters_are_narrowed() -> None:
    assert _run(narrow._HOW)["narrowed"]({"w": jnp.ones(2)})["w"].dtype == jnp.bfloat16


def _layer(name: str, *, is_linen: bool = False) -> LayerFunction:
    return LayerFunction("m.py", name, 3, "m.py:9", 2, False, 10, is_linen)


def test_functions_are_wrapped_by_what_is_printed() -> None:
    code = wrap_layers([_layer("make.<locals>.block")], "nothing_saveable")
    made = _run(code, block=jnp.sin)
    assert made["block"](0.5) == jnp.sin(0.5)
    assert code.startswith("import jax\nblock = jax.checkpoint(block, policy=")


def test_modules_of_linen_are_wrapped_by_what_is_printed() -> None:
    nn = pytest.importorskip("flax.linen")
    made = _run(wrap_layers([_layer("Dense.__call__", is_linen=True)]), Dense=nn.Dense)
    x = jnp.ones((2, 3))
    assert made["Dense"](4).init(jax.random.key(0), x)["params"]["kernel"].shape == (3, 4)
