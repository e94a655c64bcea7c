# mypy: ignore-errors
"""Clean. A linear diffusion transformer's training step; what is kept is split by tokens."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Config:
    depth: int = 12
    width: int = 512
    heads: int = 8
    ffn: int = 2048
    tokens: int = 1024
    channels: int = 64
    batch: int = 64
    rate: float = 1e-4


PARAMS = {
    "patch": (("channels", "width"), P(None, "model")),
    "time": (("width", "width"), P("data", "model")),
    "unpatch": (("width", "channels"), P("model", None)),
    "blocks": {
        "modulate": (("depth", "width", "width6"), P(None, "data", "model")),
        "qkv": (("depth", "width", "width3"), P(None, "data", "model")),
        "out": (("depth", "width", "width"), P(None, "model", "data")),
        "up": (("depth", "width", "ffn"), P(None, "data", "model")),
        "down": (("depth", "ffn", "width"), P(None, "model", "data")),
    },
}


def size(cfg, name):
    return {"width3": 3 * cfg.width, "width6": 6 * cfg.width}.get(name) or getattr(cfg, name)


def norm(x):
    x32 = x.astype(jnp.float32)
    mean = jnp.mean(x32, axis=-1, keepdims=True)
    var = jnp.var(x32, axis=-1, keepdims=True)
    return ((x32 - mean) * jax.lax.rsqrt(var + 1e-6)).astype(x.dtype)


def time_features(t, width):
    rates = jnp.exp(-np.log(1e4) * jnp.arange(width // 2) / (width // 2))
    angle = t[:, None] * 1e3 * rates
    return jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=-1)


class LinearDiT:
    """A diffusion transformer whose attention is linear in the number of tokens."""

    def __init__(self, cfg, mesh):
        self.cfg, self.mesh = cfg, mesh

    def lay(self, x, *axes):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, P(*axes)))

    def attention(self, h, block):
        b, n, _ = h.shape
        qkv = self.lay(h @ block["qkv"].astype(h.dtype), "data", None, "model")
        qkv = qkv.reshape(b, n, self.cfg.heads, 3, -1)
        q, k, v = jax.nn.relu(qkv[..., 0, :]), jax.nn.relu(qkv[..., 1, :]), qkv[..., 2, :]
        state = jnp.einsum("bnhk,bnhv->bhkv", k, v) / n
        weight = jnp.einsum("bnhk,bhk->bnh", q, jnp.mean(k, axis=1)) + 1e-4
        y = jnp.einsum("bnhk,bhkv->bnhv", q, state) / weight[..., None]
        return y.reshape(b, n, -1) @ block["out"].astype(h.dtype)

    def feed_forward(self, h, block):
        inner = self.lay(h @ block["up"].astype(h.dtype), "data", None, "model")
        return jax.nn.gelu(inner) @ block["down"].astype(h.dtype)

    def block(self, x, block, condition):
        modulation = jax.nn.silu(condition) @ block["modulate"].astype(x.dtype)
        a, b, c, d, e, f = jnp.split(modulation[:, None], 6, axis=-1)
        x += a * self.attention(norm(x) * (1 + b) + c, block)
        x += d * self.feed_forward(norm(x) * (1 + e) + f, block)
        return self.lay(x, "data", "model", None)

    def __call__(self, params, noisy, t):
        condition = time_features(t, self.cfg.width).astype(noisy.dtype)
        condition = condition @ params["time"].astype(noisy.dtype)

        @jax.checkpoint
        def body(x, block):
            return self.block(x, block, condition), None

        x = self.lay(noisy @ params["patch"].astype(noisy.dtype), "data", "model", None)
        x, _ = jax.lax.scan(body, x, params["blocks"])
        return norm(x) @ params["unpatch"].astype(x.dtype)


def make_fixed(devices):
    cfg = Config()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))
    model, tx = LinearDiT(cfg, mesh), optax.adam(cfg.rate)

    def struct(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    def loss_fn(params, latents, noise, t):
        mix = t[:, None, None].astype(latents.dtype)
        flow = model(params, (1 - mix) * latents + mix * noise, t)
        return jnp.mean(jnp.square((flow - (noise - latents)).astype(jnp.float32)))

    def step(params, opt_state, latents, noise, t):
        loss, grads = jax.value_and_grad(loss_fn)(params, latents, noise, t)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    def param(entry):
        return struct(tuple(size(cfg, n) for n in entry[0]), entry[1])

    params = jax.tree.map(param, PARAMS, is_leaf=lambda e: isinstance(e, tuple))
    adam, rest = jax.eval_shape(tx.init, params)
    opt_state = (adam._replace(count=struct((), P(), jnp.int32), mu=params, nu=params), rest)
    image = struct((cfg.batch, cfg.tokens, cfg.channels), P("data"), jnp.bfloat16)
    t = struct((cfg.batch,), P("data"))
    args = (params, opt_state, image, image, t)
    kept = jax.tree.map(lambda a: a.sharding, args[:2])
    out = (*kept, NamedSharding(mesh, P()))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=out), args
