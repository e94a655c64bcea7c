"""Parts of programs: shapes, layers, losses, optimizers."""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
lax: Any = import_module("jax.lax")
sharding: Any = import_module("jax.sharding")
P: Any = sharding.PartitionSpec


class Program(NamedTuple):
    """A function, the shapes of its arguments, and which of them it is given for good."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    donated: tuple[int, ...] = ()


# Shapes.


def floats(*dimensions: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(dimensions, dtype)


def halves(*dimensions: int) -> Any:
    return floats(*dimensions, dtype="bfloat16")


def numbers(*dimensions: int) -> Any:
    return floats(*dimensions, dtype="int32")


def block_shapes(width: int, *layers: int, dtype: str = "float32") -> dict[str, Any]:
    """The weights of a transformer's layer, or of several in one array each."""
    return {
        "qkv": floats(*layers, width, 3 * width, dtype=dtype),
        "out": floats(*layers, width, width, dtype=dtype),
        "up": floats(*layers, width, 4 * width, dtype=dtype),
        "down": floats(*layers, 4 * width, width, dtype=dtype),
    }


def language(width: int, layers: int, words: int) -> dict[str, Any]:
    """The weights of a language model whose layers come one after another."""
    return {"embed": floats(words, width), "layers": [block_shapes(width) for _ in range(layers)]}


def looped(width: int, layers: int, words: int, dtype: str = "float32") -> dict[str, Any]:
    """The same for layers in a loop."""
    return {
        "embed": floats(words, width, dtype=dtype),
        "layers": block_shapes(width, layers, dtype=dtype),
    }


def dense(*widths: int) -> list[Any]:
    """The weights and biases of layers between these widths."""
    return [(floats(one, other), floats(other)) for one, other in pairwise(widths)]


def thrice(shapes: Any) -> Any:
    """Parameters and both moments of Adam."""
    return shapes, shapes, shapes


# Layers.


def centered(x: Any) -> Any:
    """Normalized by mean and variance."""
    apart = x - x.mean(-1, keepdims=True)
    return apart * lax.rsqrt((apart**2).mean(-1, keepdims=True) + 1e-5)


def normed(x: Any) -> Any:
    """Normalized by the mean of squares."""
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def attention(x: Any, w: Any, heads: int = 4, norm: Any = centered) -> Any:
    batch, length, width = x.shape
    q, k, v = jnp.split(norm(x) @ w["qkv"], 3, -1)
    q, k, v = (part.reshape(batch, length, heads, width // heads) for part in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (width // heads) ** 0.5
    mask = jnp.tril(jnp.ones((length, length), bool))
    shares = jax.nn.softmax(jnp.where(mask, scores, -1e9), -1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", shares, v).reshape(batch, length, width)
    return x + mixed @ w["out"]


def feed_forward(x: Any, w: Any, norm: Any = centered) -> Any:
    return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"]


def block(x: Any, w: Any, heads: int = 4, norm: Any = centered) -> Any:
    """A layer of a transformer."""
    return feed_forward(attention(x, w, heads, norm), w, norm)


def wide_block(x: Any, w: Any) -> Any:
    """The same as large models have it."""
    return block(x, w, 8, normed)


def conv(x: Any, w: Any, stride: int = 1) -> Any:
    sides = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=sides)


def run_softmax(state: Any, scores: Any, mix: Callable[[Any], Any]) -> Any:
    """A softmax over blocks: highest score, sum and mixture so far, with one block more."""
    high, total, out = state
    new = jnp.maximum(high, scores.max(-1))
    weight, fade = jnp.exp(scores - new[..., None]), jnp.exp(high - new)
    return new, total * fade + weight.sum(-1), out * fade[..., None] + mix(weight)


def sum_edges(x: Any, sources: Any, targets: Any) -> Any:
    """The values at the sources of a graph's edges, summed at their targets."""
    return jax.ops.segment_sum(x[sources], targets, x.shape[0])


# Training.


def cross_entropy(logits: Any, labels: Any) -> Any:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -chosen.mean()


def down(gradients: Any, parameters: Any) -> Any:
    """A step of gradient descent."""
    return jax.tree.map(lambda p, g: (p - 0.1 * g).astype(p.dtype), parameters, gradients)


def adam(gradients: Any, state: Any) -> Any:
    """A step of Adam; the state is parameters and both moments."""
    parameters, first, second = state
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradients)

    def moved(p: Any, m: Any, v: Any) -> Any:
        return (p - 1e-3 * m / (jnp.sqrt(v) + 1e-8)).astype(p.dtype)

    return jax.tree.map(moved, parameters, first, second), first, second


def descend(loss: Any) -> Any:
    """The training step of a loss."""
    return lambda ps, *given: down(jax.grad(loss)(ps, *given), ps)


# Memories and devices.


def named(x: Any, name: str) -> Any:
    return import_module("jax.ad_checkpoint").checkpoint_name(x, name)


def offloading(block: Any) -> Any:
    """A layer whose input waits in the host's memory for the backward pass."""
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["kept"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    return jax.checkpoint(lambda x, w: (block(named(x, "kept"), w), None), policy=policy)


def on_host(shapes: Any, device: Any) -> Any:
    kept = sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=kept), shapes)


def mesh_of(devices: Any, *names: str) -> Any:
    """All devices in a row, or in two."""
    count = len(devices)
    grid = (count,) if len(names) == 1 else (2, count // 2)
    return sharding.Mesh(import_module("numpy").array(devices).reshape(grid), names)


def laid(mesh: Any, shapes: Any, spec: Any, kind: str | None = None) -> Any:
    """Shapes that are spread over devices."""
    placed = sharding.NamedSharding(mesh, spec, memory_kind=kind)
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=placed), shapes)


def on_each(function: Any, mesh: Any, in_specs: Any, out_specs: Any) -> Any:
    """A function that every device runs on its own part."""
    return jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )
