# mypy: ignore-errors
"""Fault: gathered. All layers' weights are cast and gathered over the FSDP axis in one go before the layer loop, so the
whole model in bf16 lives on each chip from the start of the forward to the end of the backward pass."""
import dataclasses as dc

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dc.dataclass(frozen=True)
class Cfg:
    n_layers: int = 12
    d_model: int = 1024
    d_ff: int = 4096
    n_heads: int = 8
    vocab: int = 8192
    seq: int = 512
    global_batch: int = 16
    gather_up_front: bool = True


class LM:
    def __init__(self, cfg, mesh):
        self.cfg, self.mesh = cfg, mesh

    def sh(self, *spec):
        return NamedSharding(self.mesh, P(*spec))

    def shapes(self):
        c = self.cfg
        blocks = {
            "wqkv": (c.n_layers, c.d_model, 3 * c.d_model),
            "wo": (c.n_layers, c.d_model, c.d_model),
            "w_gate": (c.n_layers, c.d_model, c.d_ff),
            "w_up": (c.n_layers, c.d_model, c.d_ff),
            "w_down": (c.n_layers, c.d_ff, c.d_model),
        }
        return {"blocks": blocks, "embed": (c.vocab, c.d_model)}

    def shardings(self):
        blocks = {k: self.sh(None, "fsdp", None) for k in self.shapes()["blocks"]}
        return {"blocks": blocks, "embed": self.sh("fsdp", None)}

    def gather(self, tree):
        """Compute copy: bf16 and whole."""
        whole = self.sh()
        return jax.tree.map(lambda w: jax.lax.with_sharding_constraint(w.astype(jnp.bfloat16), whole), tree)

    def block(self, x, w):
        c = self.cfg
        b, s, d = x.shape
        y = x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-5).astype(x.dtype)
        q, k, v = jnp.split((y @ w["wqkv"]).reshape(b, s, 3 * c.n_heads, d // c.n_heads), 3, axis=2)
        x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, s, d) @ w["wo"]
        y = x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-5).astype(x.dtype)
        return x + (jax.nn.silu(y @ w["w_gate"]) * (y @ w["w_up"])) @ w["w_down"]

    def loss(self, params, tokens):
        act = self.sh("fsdp", None, None)
        embed = self.gather(params["embed"])
        x = jax.lax.with_sharding_constraint(embed[tokens[:, :-1]], act)
        if self.cfg.gather_up_front:
            blocks = self.gather(params["blocks"])  # FAULT
            body = lambda x, w: (self.block(x, w), None)
        else:
            blocks = params["blocks"]
            body = lambda x, w: (self.block(x, self.gather(w)), None)
        x, _ = jax.lax.scan(jax.checkpoint(body), x, blocks)
        logits = jnp.einsum("bsd,vd->bsv", x, embed, preferred_element_type=jnp.float32)
        logp = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.take_along_axis(logp, tokens[:, 1:, None], axis=-1))

    def train_step(self, params, tokens):
        loss, grads = jax.value_and_grad(self.loss)(params, tokens)
        return jax.tree.map(lambda p, g: p - 1e-2 * g, params, grads), loss


def _get(devices, cfg):
    mesh = Mesh(np.array(devices), ("fsdp",))
    model = LM(cfg, mesh)
    shardings = model.shardings()
    params = jax.tree.map(lambda h, s: jax.ShapeDtypeStruct(s, jnp.float32, sharding=h), shardings, model.shapes())
    tokens = jax.ShapeDtypeStruct((cfg.global_batch, cfg.seq + 1), jnp.int32, sharding=model.sh("fsdp"))
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=(shardings, model.sh()))
    return step, (params, tokens)


def make_faulty(devices):
    return _get(devices, Cfg())


def make_fixed(devices):
    return _get(devices, Cfg(gather_up_front=False))
