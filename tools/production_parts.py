"""Parts of programs as they run in production: shapes, optimizers, blocks of language models."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
lax: Any = import_module("jax.lax")
sharding: Any = import_module("jax.sharding")
P: Any = sharding.PartitionSpec


class Made(NamedTuple):
    """A function, the shapes of its arguments, and which of them it is given for good."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    donated: tuple[int, ...] = ()


def floats(*dimensions: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(dimensions, dtype)


def halves(*dimensions: int) -> Any:
    return floats(*dimensions, dtype="bfloat16")


def numbers(*dimensions: int) -> Any:
    return floats(*dimensions, dtype="int32")


def down(gradients: Any, parameters: Any, rate: float = 0.1) -> Any:
    return jax.tree.map(lambda p, g: (p - rate * g).astype(p.dtype), parameters, gradients)


def adam(gradients: Any, state: Any) -> Any:
    """One step of Adam; the state is parameters and both moments."""
    parameters, first, second = state
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradients)

    def moved(p: Any, m: Any, v: Any) -> Any:
        return (p - 1e-3 * m / (jnp.sqrt(v) + 1e-8)).astype(p.dtype)

    return jax.tree.map(moved, parameters, first, second), first, second


def normed(x: Any) -> Any:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def attention(x: Any, w: Any, heads: int) -> Any:
    q, k, v = (
        part.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for part in jnp.split(x @ w, 3, -1)
    )
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    mixed = jax.nn.softmax(jnp.where(seen, scores, -1e9), -1) @ v
    return mixed.swapaxes(1, 2).reshape(x.shape)


def decoder_block(x: Any, layer: Any, heads: int = 8) -> Any:
    x = x + attention(normed(x), layer["qkv"], heads) @ layer["out"]
    return x + jax.nn.gelu(normed(x) @ layer["up"]) @ layer["down"]


def layers(count: int, width: int, dtype: str = "float32") -> Any:
    return {
        "qkv": floats(count, width, 3 * width, dtype=dtype),
        "out": floats(count, width, width, dtype=dtype),
        "up": floats(count, width, 4 * width, dtype=dtype),
        "down": floats(count, 4 * width, width, dtype=dtype),
    }


def cross_entropy(logits: Any, labels: Any) -> Any:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -chosen.mean()


def language_loss(ps: Any, tokens: Any, labels: Any, policy: Any = None) -> Any:
    block = jax.checkpoint(lambda x, layer: (decoder_block(x, layer), None), policy=policy)
    x, _ = lax.scan(block, ps["embed"][tokens], ps["layers"])
    return cross_entropy(normed(x) @ ps["embed"].T, labels)


def language(count: int, width: int, words: int, dtype: str = "float32") -> Any:
    return {"embed": floats(words, width, dtype=dtype), "layers": layers(count, width, dtype)}


def named(x: Any, name: str) -> Any:
    return import_module("jax.ad_checkpoint").checkpoint_name(x, name)
