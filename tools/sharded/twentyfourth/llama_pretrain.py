# mypy: ignore-errors
"""Fault: gathered. The weights of all layers are gathered before the scan, outside its checkpointed body, so the gathered
copies are the body's inputs and all of them stay on each device until the backward pass.

One FSDP training step of a small Llama on eight devices, scanned layers, AdamW.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclass(frozen=True)
class Config:
    vocab: int = 8192
    width: int = 2048
    hidden: int = 5632
    heads: int = 16
    layers: int = 4
    batch: int = 16
    length: int = 512

    @property
    def head_dim(self):
        return self.width // self.heads


def init_params(cfg, key):
    def dense(key, *shape):
        return jax.random.normal(key, shape, jnp.float32) * shape[0] ** -0.5

    def layer(key):
        a, b, c, d, e = jax.random.split(key, 5)
        return {
            "qkv": dense(a, cfg.width, 3 * cfg.width),
            "out": dense(b, cfg.width, cfg.width),
            "gate": dense(c, cfg.width, cfg.hidden),
            "up": dense(d, cfg.width, cfg.hidden),
            "down": dense(e, cfg.hidden, cfg.width),
            "norm1": jnp.ones((cfg.width,)),
            "norm2": jnp.ones((cfg.width,)),
        }

    k_embed, k_layers = jax.random.split(key)
    layers = jax.vmap(layer)(jax.random.split(k_layers, cfg.layers))
    return {"embed": dense(k_embed, cfg.vocab, cfg.width), "layers": layers, "norm": jnp.ones((cfg.width,))}


def rms_norm(x, scale):
    var = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * jax.lax.rsqrt(var + 1e-6)).astype(x.dtype) * scale.astype(x.dtype)


def unshard(weights, mesh):
    """FSDP: cast to bfloat16, then gather along the fsdp axis."""
    whole = NamedSharding(mesh, P())
    return jax.tree.map(lambda w: jax.lax.with_sharding_constraint(w.astype(jnp.bfloat16), whole), weights)


def make_block(cfg):
    causal = np.tril(np.ones((cfg.length, cfg.length), bool))

    def block(w, h):
        b, s, _ = h.shape
        q, k, v = jnp.split(rms_norm(h, w["norm1"]) @ w["qkv"], 3, axis=-1)
        q, k, v = (t.reshape(b, s, cfg.heads, cfg.head_dim) for t in (q, k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * cfg.head_dim**-0.5
        probs = jax.nn.softmax(jnp.where(causal, scores, -1e9).astype(jnp.float32)).astype(h.dtype)
        h = h + jnp.einsum("bhqk,bkhd->bqhd", probs, v).reshape(b, s, -1) @ w["out"]
        x = rms_norm(h, w["norm2"])
        return h + (jax.nn.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"]

    return block


def make_loss(cfg, mesh):
    block = make_block(cfg)
    rows = NamedSharding(mesh, P("fsdp"))

    def loss(params, tokens):
        embed = unshard(params["embed"], mesh)
        h = jax.lax.with_sharding_constraint(embed[tokens], rows)
        layers = unshard(params["layers"], mesh)  # FAULT

        @jax.checkpoint
        def body(h, layer):
            h = block(layer, h)
            return jax.lax.with_sharding_constraint(h, rows), None

        h, _ = jax.lax.scan(body, h, layers)
        logits = rms_norm(h, params["norm"]) @ embed.T
        targets = jnp.roll(tokens, -1, axis=1)
        return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), targets).mean()

    return loss


def make_faulty(devices):
    cfg = Config()
    mesh = Mesh(np.asarray(devices).reshape(8), ("fsdp",))
    optimizer = optax.adamw(3e-4, weight_decay=0.1)
    loss = make_loss(cfg, mesh)

    def step(params, opt_state, tokens):
        value, grads = jax.value_and_grad(loss)(params, tokens)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    def place(leaf):
        spec = P(*[None] * (leaf.ndim - 2), "fsdp") if leaf.size >= 2**16 else P()
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    params = jax.tree.map(place, jax.eval_shape(lambda: init_params(cfg, jax.random.key(0))))
    opt_state = jax.tree.map(place, jax.eval_shape(optimizer.init, params))
    tokens = jax.ShapeDtypeStruct((cfg.batch, cfg.length), jnp.int32, sharding=NamedSharding(mesh, P("fsdp")))

    of = lambda tree: jax.tree.map(lambda leaf: leaf.sharding, tree)
    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=(of(params), of(opt_state), NamedSharding(mesh, P())))
    return jitted, (params, opt_state, tokens)
