"""XLA compiles and runs programs in pieces: the memory that is foreseen, results as before."""

from __future__ import annotations

from typing import Any

import pytest

from hlomem.jax import optimize
from hlomem.jax.pass_ import log

jax: Any = pytest.importorskip("jax", reason="jax is not installed")
jnp: Any = pytest.importorskip("jax.numpy")
np: Any = pytest.importorskip("numpy")
pytest.importorskip("jax.extend.xla", reason="this jax has no hook for passes")


def _step(loss: Any) -> Any:
    def step(parameters: Any, *data: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(parameters, *data)
        return jax.tree.map(lambda one, other: one - 0.1 * other, parameters, gradients), value

    return step


def _vocabulary_loss(p: Any, x: Any, labels: Any) -> Any:
    logits = jnp.tanh(x @ p["w"]) @ p["e"].T
    taken = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
    return -jnp.mean(taken)


def _attention_loss(p: Any, x: Any) -> Any:
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name]) for name in "qkv")
    weights = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, k) / 4)
    mixed = jnp.einsum("bhts,bshk->bthk", weights, v)
    return jnp.mean(jnp.einsum("bthk,hkd->btd", mixed, p["o"]) ** 2)


def _contrastive_loss(p: Any, x: Any, y: Any) -> Any:
    return -jnp.mean(jnp.diagonal(jax.nn.log_softmax((x @ p) @ (y @ p).T)))


def _looped_loss(p: Any, x: Any) -> Any:
    """Attention in the body of a loop, recomputed in that of the loop back."""

    def layer(carried: Any, w: Any) -> Any:
        scores = jnp.einsum("btd,bsd->bts", carried @ w, carried)
        return carried + jax.nn.softmax(scores) @ carried, None

    carried, _ = jax.lax.scan(jax.checkpoint(layer), x, p)
    return jnp.mean(carried**2)


def _normal(*shape: int, seed: int = 0) -> Any:
    return 0.3 * jax.random.normal(jax.random.key(seed), shape)


def _vocabulary() -> tuple[Any, ...]:
    labels = jax.random.randint(jax.random.key(3), (256,), 0, 4096)
    return {"w": _normal(32, 32), "e": _normal(4096, 32)}, _normal(256, 32, seed=1), labels


def _attention() -> tuple[Any, ...]:
    shapes = dict.fromkeys("qkv", (16, 2, 16)) | {"o": (2, 16, 16)}
    weights = {name: _normal(*shape, seed=ord(name)) for name, shape in shapes.items()}
    return weights, _normal(4, 192, 16)


def _pairs() -> tuple[Any, ...]:
    return _normal(32, 16), _normal(1024, 32, seed=1), _normal(1024, 32, seed=2)


def _looped() -> tuple[Any, ...]:
    return _normal(3, 16, 16), _normal(4, 256, 16, seed=1)


PROGRAMS = {
    "vocabulary": (_vocabulary_loss, _vocabulary),
    "attention": (_attention_loss, _attention),
    "contrastive": (_contrastive_loss, _pairs),
    "loop": (_looped_loss, _looped),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("share", [0.5, 0.4])
def test_a_program_in_pieces_needs_what_is_foreseen_and_computes_the_same(
    name: str, share: float
) -> None:
    loss, arguments = PROGRAMS[name][0], PROGRAMS[name][1]()
    plain = jax.jit(_step(loss)).lower(*arguments).compile()
    log.forget()
    with optimize(fit=share, min_bytes=0):
        made = jax.jit(_step(loss)).lower(*arguments).compile()
    [outcome] = [one for one in log.report().outcomes if one.kind == "improved"]
    assert outcome.pieces >= 1, str(outcome)
    assert outcome.rounding
    before, after = (one.memory_analysis().temp_size_in_bytes for one in (plain, made))
    assert (before, after) == (outcome.before, outcome.after)
    assert after <= share * before
    for one, other in zip(
        jax.tree.leaves(plain(*arguments)), jax.tree.leaves(made(*arguments)), strict=True
    ):
        scale = float(np.max(np.abs(one)))
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5 * scale)


def test_a_program_that_must_stay_exact_is_not_computed_in_pieces() -> None:
    loss, arguments = PROGRAMS["vocabulary"][0], _vocabulary()
    log.forget()
    with optimize(fit=0.5, exact=True, min_bytes=0):
        made = jax.jit(_step(loss)).lower(*arguments).compile()
    plain = jax.jit(_step(loss)).lower(*arguments).compile()
    assert not any(one.pieces for one in log.report().outcomes)
    for one, other in zip(
        jax.tree.leaves(plain(*arguments)), jax.tree.leaves(made(*arguments)), strict=True
    ):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
