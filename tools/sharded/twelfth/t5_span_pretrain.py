# mypy: ignore-errors
"""Fault: replicated. The logical axis rules leave "vocab" undivided, so the embedding table,
its Adam moments and the logits are whole along the "model" axis of the mesh."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

VOCAB, EMBED, MLP, HEADS, HEAD_DIM = 32128, 768, 2048, 12, 64
LAYERS, BATCH, LENGTH = 2, 16, 128

RULES = (
    ("batch", "data"),
    ("length", None),
    ("embed", None),
    ("vocab", None),  # FAULT
    ("mlp", "model"),
    ("heads", "model"),
    ("kv", None),
)


def param_init(*names):
    return nn.with_logical_partitioning(nn.initializers.normal(0.02), names)


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x):
        shape = (EMBED, HEADS, HEAD_DIM)
        proj = {n: self.param(n, param_init("embed", "heads", "kv"), shape) for n in "qkv"}
        out = self.param("o", param_init("heads", "kv", "embed"), (HEADS, HEAD_DIM, EMBED))
        q, k, v = (jnp.einsum("ble,ehd->blhd", x, proj[n]) for n in "qkv")
        q = nn.with_logical_constraint(q, ("batch", "length", "heads", "kv"))
        scores = jnp.einsum("blhd,bmhd->bhlm", q, k) / HEAD_DIM**0.5
        mixed = jnp.einsum("bhlm,bmhd->blhd", nn.softmax(scores), v)
        return jnp.einsum("blhd,hde->ble", mixed, out)


class GatedMlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        wi_0 = self.param("wi_0", param_init("embed", "mlp"), (EMBED, MLP))
        wi_1 = self.param("wi_1", param_init("embed", "mlp"), (EMBED, MLP))
        wo = self.param("wo", param_init("mlp", "embed"), (MLP, EMBED))
        h = nn.with_logical_constraint(nn.gelu(x @ wi_0) * (x @ wi_1), ("batch", "length", "mlp"))
        return h @ wo


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        table = self.param("token_embedder", param_init("vocab", "embed"), (VOCAB, EMBED))
        x = jnp.take(table, tokens, axis=0)
        for _ in range(LAYERS):
            x = nn.with_logical_constraint(x, ("batch", "length", "embed"))
            x = x + Attention()(nn.RMSNorm(use_scale=False)(x))
            x = x + GatedMlp()(nn.RMSNorm(use_scale=False)(x))
        logits = jnp.einsum("ble,ve->blv", nn.RMSNorm(use_scale=False)(x), table)
        return nn.with_logical_constraint(logits, ("batch", "length", "vocab"))


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    model = Encoder()
    tx = optax.adamw(1e-3)

    def init_state(key):
        params = model.init(key, jnp.zeros((1, LENGTH), jnp.int32))["params"]
        return {"params": params, "opt": tx.init(params), "step": jnp.zeros((), jnp.int32)}

    def train_step(state, batch):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh), nn.logical_axis_rules(RULES):

            def loss_fn(params):
                logits = model.apply({"params": params}, batch["inputs"])
                nll = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
                return (nll * batch["weights"]).sum() / batch["weights"].sum()

            loss, grads = jax.value_and_grad(loss_fn)(state["params"])
            updates, opt = tx.update(grads, state["opt"], state["params"])
            params = optax.apply_updates(state["params"], updates)
        return {"params": params, "opt": opt, "step": state["step"] + 1}, loss

    boxed = jax.eval_shape(init_state, jax.random.key(0))
    logical = nn.get_partition_spec(boxed)
    state_shardings = nn.logical_to_mesh_sharding(logical, mesh, RULES)
    state = nn.meta.unbox(boxed)
    by_row = NamedSharding(mesh, P("data", None))
    batch = {n: jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32) for n in ("inputs", "targets")}
    batch["weights"] = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.float32)

    fn = jax.jit(
        train_step,
        in_shardings=(state_shardings, {n: by_row for n in batch}),
        out_shardings=(state_shardings, NamedSharding(mesh, P())),
        donate_argnums=0,
    )
    return fn, (state, batch)
