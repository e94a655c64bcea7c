# mypy: ignore-errors
"""Fault: replicated. The text encoder's outputs, by far the largest part of a batch, come in with the
sharding meant for the scalars (`whole`), so each chip holds the captions of all the clips.

Latent video diffusion transformer with cross-attention to precomputed T5 embeddings, flax nnx, FSDP over
four chips; rectified-flow loss.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

WIDTH, HEADS, BLOCKS, LATENT = 768, 12, 4, 64
CLIPS, PATCHES, CAPTION, T5_WIDTH = 32, 512, 512, 4096


class Attention(nnx.Module):
    def __init__(self, rngs):
        def make():
            return nnx.Linear(WIDTH, WIDTH, use_bias=False, dtype=jnp.bfloat16, rngs=rngs)

        self.q, self.k, self.v, self.o = make(), make(), make(), make()

    def __call__(self, x, context):
        def heads(y):
            return y.reshape(*y.shape[:-1], HEADS, WIDTH // HEADS)

        y = jax.nn.dot_product_attention(heads(self.q(x)), heads(self.k(context)), heads(self.v(context)))
        return self.o(y.reshape(x.shape))


class Block(nnx.Module):
    def __init__(self, rngs):
        self.own, self.cross = Attention(rngs), Attention(rngs)
        self.norms = nnx.List([nnx.LayerNorm(WIDTH, dtype=jnp.bfloat16, rngs=rngs) for _ in range(3)])
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.modulate = nnx.Linear(WIDTH, 2 * WIDTH, dtype=jnp.bfloat16, rngs=rngs)

    def __call__(self, x, context, time):
        shift, scale = jnp.split(self.modulate(time)[:, None], 2, axis=-1)
        y = self.norms[0](x) * (1 + scale) + shift
        x = x + self.own(y, y)
        x = x + self.cross(self.norms[1](x), context)
        return x + self.down(jax.nn.gelu(self.up(self.norms[2](x))))


class VideoDiT(nnx.Module):
    def __init__(self, rngs):
        self.patch = nnx.Linear(LATENT, WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.caption = nnx.Linear(T5_WIDTH, WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.time = nnx.Linear(256, WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(BLOCKS)])
        self.out = nnx.Linear(WIDTH, LATENT, dtype=jnp.float32, rngs=rngs)

    def __call__(self, x, caption, t):
        freqs = jnp.exp(-jnp.arange(128) * (jnp.log(10_000.0) / 128))
        angles = t[:, None] * 1000.0 * freqs
        time = jax.nn.silu(self.time(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)))
        x, context = self.patch(x), self.caption(caption)
        for block in self.blocks:
            x = nnx.remat(Block.__call__)(block, x, context, time)
        return self.out(x)


def batch_shardings(split, whole):
    return {
        "latents": split,
        "noise": split,
        "caption": whole,  # FAULT
        "time": split,
        "caption_dropout": whole,
    }


def batch_shapes():
    return {
        "latents": jax.ShapeDtypeStruct((CLIPS, PATCHES, LATENT), jnp.float32),
        "noise": jax.ShapeDtypeStruct((CLIPS, PATCHES, LATENT), jnp.float32),
        "caption": jax.ShapeDtypeStruct((CLIPS, CAPTION, T5_WIDTH), jnp.bfloat16),
        "time": jax.ShapeDtypeStruct((CLIPS,), jnp.float32),
        "caption_dropout": jax.ShapeDtypeStruct((), jnp.float32),
    }


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(4), ("fsdp",))
    split, whole = NamedSharding(mesh, P("fsdp")), NamedSharding(mesh, P())
    graph, params = nnx.split(nnx.eval_shape(lambda: VideoDiT(nnx.Rngs(0))))
    params = nnx.to_pure_dict(params)
    tx = optax.adamw(1e-4, b2=0.99)

    def place(x):
        sharding = split if x.ndim == 2 and x.shape[0] % mesh.size == 0 else whole
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    def loss_fn(params, batch):
        state = nnx.state(nnx.eval_shape(lambda: VideoDiT(nnx.Rngs(0))))
        nnx.replace_by_pure_dict(state, params)
        model = nnx.merge(graph, state)
        t = batch["time"][:, None, None]
        keep = (batch["time"] >= batch["caption_dropout"]).astype(jnp.bfloat16)
        noisy = (1 - t) * batch["latents"] + t * batch["noise"]
        flow = model(noisy, batch["caption"] * keep[:, None, None], batch["time"])
        return jnp.mean((flow - (batch["noise"] - batch["latents"])) ** 2)

    def step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    opt_state = jax.tree.map(place, jax.eval_shape(tx.init, params))
    params = jax.tree.map(place, params)
    batch = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        batch_shapes(),
        batch_shardings(split, whole),
    )
    out = jax.tree.map(lambda x: x.sharding, (params, opt_state))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=(*out, whole)), (params, opt_state, batch)
