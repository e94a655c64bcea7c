# mypy: ignore-errors
"""Clean. Training step of a language model for source code on 16 chips: weights and moments split
over both axes, gathered block by block under remat, and the residual stream split by sequence too.
"""
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclass(frozen=True)
class Weight:
    """Shape of a weight, where it is stored and how a block uses it."""

    shape: tuple
    stored: P = P()
    used: P = P()


class CodeModel:
    width, hidden, heads, layers, vocab = 1024, 4096, 16, 8, 32_768

    def __init__(self, mesh):
        self.mesh = mesh

    def weights(self):
        d, h, v = self.width, self.hidden, self.vocab
        column = dict(stored=P("fsdp", "tensor"), used=P(None, "tensor"))
        row = dict(stored=P("tensor", "fsdp"), used=P("tensor", None))
        block = {
            "norm1": Weight((d,)),
            "q": Weight((d, d), **column),
            "k": Weight((d, d), **column),
            "v": Weight((d, d), **column),
            "o": Weight((d, d), **row),
            "norm2": Weight((d,)),
            "up": Weight((d, h), **column),
            "down": Weight((h, d), **row),
        }
        return {
            "embed": Weight((v, d), **row),
            "blocks": block,
            "norm": Weight((d,)),
            "unembed": Weight((d, v), **column),
        }

    def abstract(self):
        def struct(path, w):
            stacked = path[0].key == "blocks"
            shape = (self.layers, *w.shape) if stacked else w.shape
            spec = P(None, *w.stored) if stacked else w.stored
            return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(self.mesh, spec))

        leaf = lambda x: isinstance(x, Weight)
        return jax.tree_util.tree_map_with_path(struct, self.weights(), is_leaf=leaf)

    def lay(self, x, *axes):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, P(*axes)))

    def gather(self, params, table):
        """Casts to bfloat16, then joins the parts along the axis of FSDP."""
        return {
            name: self.lay(x.astype(jnp.bfloat16), *table[name].used) if x.ndim > 1 else x
            for name, x in params.items()
        }

    def norm(self, x, scale):
        y = x.astype(jnp.float32)
        y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + 1e-6)
        return (y * scale).astype(x.dtype)

    def attention(self, x, w):
        b, t, d = x.shape
        split = lambda y: self.lay(y.reshape(b, t, self.heads, -1), "fsdp", None, "tensor", None)
        q, k, v = split(x @ w["q"]), split(x @ w["k"]), split(x @ w["v"])
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
        causal = jnp.tril(jnp.ones((t, t), bool))
        scores = jnp.where(causal, scores * (d // self.heads) ** -0.5, -1e30)
        y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(x.dtype), v)
        y = self.lay(y, "fsdp", None, "tensor", None)
        return y.reshape(b, t, d) @ w["o"]

    def block(self, x, params):
        w = self.gather(params, self.weights()["blocks"])
        y = self.lay(self.norm(x, w["norm1"]), "fsdp", None, None)
        x = x + self.lay(self.attention(y, w), "fsdp", "tensor", None)
        y = self.lay(self.norm(x, w["norm2"]), "fsdp", None, None)
        y = self.lay(jax.nn.gelu(y @ w["up"]), "fsdp", None, "tensor")
        return x + self.lay(y @ w["down"], "fsdp", "tensor", None), None

    def logits(self, params, tokens):
        end = lambda name: self.gather({name: params[name]}, self.weights())[name]
        x = self.lay(end("embed")[tokens], "fsdp", "tensor", None)
        x, _ = jax.lax.scan(jax.checkpoint(self.block), x, params["blocks"])
        x = self.lay(self.norm(x, params["norm"]), "fsdp", None, None)
        return self.lay(x @ end("unembed"), "fsdp", None, "tensor")

    def loss(self, params, tokens):
        logits = self.logits(params, tokens[:, :-1]).astype(jnp.float32)
        picked = jax.nn.one_hot(tokens[:, 1:], self.vocab, dtype=jnp.float32)
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - jnp.sum(logits * picked, axis=-1))


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("fsdp", "tensor"))
    model = CodeModel(mesh)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-4, 1_000, 100_000)
    tx = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.95, weight_decay=0.1)
    )
    params = model.abstract()
    whole = NamedSharding(mesh, P())
    # The moments are trees like the parameters; what is left are counters.
    moments = optax.tree_map_params(
        tx,
        lambda m, p: jax.ShapeDtypeStruct(m.shape, m.dtype, sharding=p.sharding),
        jax.eval_shape(tx.init, params),
        params,
        transform_non_params=lambda c: jax.ShapeDtypeStruct(c.shape, c.dtype, sharding=whole),
    )
    where = lambda tree: jax.tree.map(lambda x: x.sharding, tree)

    @partial(jax.jit, donate_argnums=(0, 1), out_shardings=(where(params), where(moments), whole))
    def train_step(params, moments, tokens):
        loss, grads = jax.value_and_grad(model.loss)(params, tokens)
        updates, moments = tx.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments, loss

    tokens = jax.ShapeDtypeStruct((16, 1025), jnp.int32, sharding=NamedSharding(mesh, P("fsdp")))
    return train_step, (params, moments, tokens)
