# mypy: ignore-errors
"""Fault: dropped. The logical constraints look for the mesh of jax.set_mesh; under the old `with mesh:`
they find none and do nothing, so all activations stay whole along `seq`."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

RULES = (("batch", "data"), ("frames", "seq"), ("space", None), ("embed", None), ("mlp", None))
ACT = ("batch", "frames", "space", "embed")
BATCH, FRAMES, SPACE, CHANNELS = 4, 16, 256, 16


def timestep_embedding(t, dim):
    freqs = jnp.exp(-np.log(10000.0) * jnp.arange(dim // 2) / (dim // 2))
    ang = t[:, None] * freqs
    return jnp.concatenate([jnp.sin(ang), jnp.cos(ang)], -1)


class AxialAttention(nn.Module):
    heads: int
    axis: int  # 1: over frames, 2: within a frame

    @nn.compact
    def __call__(self, x):
        d = x.shape[-1]
        qkv = nn.DenseGeneral((3, self.heads, d // self.heads), use_bias=False, name="qkv")(x)
        q, k, v = (qkv[..., i, :, :] for i in range(3))
        if self.axis == 1:
            s = jnp.einsum("bfshd,bgshd->bshfg", q, k) / np.sqrt(d // self.heads)
            o = jnp.einsum("bshfg,bgshd->bfshd", nn.softmax(s), v)
        else:
            s = jnp.einsum("bfshd,bfthd->bfhst", q, k) / np.sqrt(d // self.heads)
            o = jnp.einsum("bfhst,bfthd->bfshd", nn.softmax(s), v)
        return nn.DenseGeneral(d, axis=(-2, -1), name="out")(o)


class Block(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x, cond):
        shift, scale = jnp.split(nn.Dense(2 * x.shape[-1], name="ada")(cond)[:, None, None], 2, -1)
        h = nn.LayerNorm()(x) * (1 + scale) + shift
        x = x + AxialAttention(self.heads, 2, name="spatial")(h)
        x = x + AxialAttention(self.heads, 1, name="temporal")(nn.LayerNorm()(x))
        h = nn.gelu(nn.Dense(4 * x.shape[-1], name="up")(nn.LayerNorm()(x)))
        return x + nn.Dense(x.shape[-1], name="down")(h)


class VideoDenoiser(nn.Module):
    dim: int = 256
    heads: int = 4
    depth: int = 2
    mesh: Mesh | None = None  # None: that of the context

    @nn.compact
    def __call__(self, latents, t):
        x = nn.Dense(self.dim, name="patch")(latents)
        cond = nn.Dense(self.dim, name="time")(timestep_embedding(t, self.dim))
        for i in range(self.depth):
            x = nn.with_logical_constraint(x, ACT, mesh=self.mesh)  # FAULT
            x = Block(self.heads, name=f"block_{i}")(x, cond)
        return nn.Dense(latents.shape[-1], name="unpatch")(nn.LayerNorm()(x))


def train_step(state, batch):
    def loss_fn(params):
        sigma = batch["t"][:, None, None, None]
        noisy = (1 - sigma) * batch["latents"] + sigma * batch["noise"]
        velocity = state.apply_fn({"params": params}, noisy, batch["t"])
        return jnp.mean(jnp.square(velocity - (batch["noise"] - batch["latents"])))

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def make_mesh(devices):
    return Mesh(np.array(devices).reshape(2, 4), ("data", "seq"))


def build(mesh, model):
    rep, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    video = jax.ShapeDtypeStruct((BATCH, FRAMES, SPACE, CHANNELS), jnp.float32)
    t = jax.ShapeDtypeStruct((BATCH,), jnp.float32)

    def init():
        x = jnp.zeros(video.shape, video.dtype)
        params = model.init(jax.random.key(0), x, jnp.zeros(t.shape))["params"]
        return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-4))

    state = jax.eval_shape(init)
    batch = dict(latents=video, noise=video, t=t)

    def step(state, batch):
        with mesh, nn.logical_axis_rules(RULES):  # FAULT
            return train_step(state, batch)

    fn = jax.jit(step, in_shardings=(rep, rows), out_shardings=(rep, rep), donate_argnums=0)
    return fn, (state, batch)


def make_faulty(devices):
    return build(make_mesh(devices), VideoDenoiser())


def make_fixed(devices):
    mesh = make_mesh(devices)
    return build(mesh, VideoDenoiser(mesh=mesh))
