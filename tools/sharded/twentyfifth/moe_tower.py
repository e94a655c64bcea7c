# mypy: ignore-errors
"""Fault: dropped. The experts' weights name their first dimension "expert", the rules only know "experts": linen leaves
an unknown name unsplit, so every row of the mesh holds all experts (and their moments).

Training of a mixture-of-experts tower that ranks items from embedded event histories (top-1 routing with capacity).
"""
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

LAYERS, EXPERTS, DIM, HIDDEN, ITEMS = 2, 16, 1024, 2048, 8192
GROUPS, LENGTH, CAPACITY = 32, 256, 40

RULES = (
    ("batch", "data"),
    ("experts", "data"),
    ("mlp", "model"),
    ("items", "model"),
    ("embed", None),
    ("layers", None),
)

dense = nn.initializers.lecun_normal()


def route(logits):
    """Top-1 routing: a [group, token, expert, slot] tensor of combine weights."""
    gates = jax.nn.softmax(logits, -1)
    onehot = jax.nn.one_hot(jnp.argmax(gates, -1), EXPERTS)
    # earlier[t, s]: token s comes before token t and takes its slot first
    earlier = jnp.tril(jnp.ones((LENGTH, LENGTH)), -1)
    slot = jnp.where(onehot > 0, jnp.einsum("ts,gse->gte", earlier, onehot), -1).astype(jnp.int32)
    slots = jax.nn.one_hot(slot, CAPACITY, dtype=jnp.bfloat16)
    return (gates * onehot)[..., None].astype(jnp.bfloat16) * slots


class ExpertLayer(nn.Module):
    mesh: Any

    def pin(self, x, *names):
        return nn.with_logical_constraint(x, names, rules=RULES, mesh=self.mesh)

    @nn.compact
    def __call__(self, x, _):
        x = self.pin(x, "batch", None, "embed")
        partitioned = nn.with_logical_partitioning
        router = self.param("router", partitioned(dense, ("embed", None)), (DIM, EXPERTS))
        w_in = self.param("w_in", partitioned(dense, ("expert", "embed", "mlp")), (EXPERTS, DIM, HIDDEN))  # FAULT
        w_out = self.param("w_out", partitioned(dense, ("expert", "mlp", "embed")), (EXPERTS, HIDDEN, DIM))  # FAULT

        h = nn.RMSNorm(name="norm")(x)
        combine = self.pin(route(h @ router), "batch", None, None, None)
        dispatch = (combine > 0).astype(jnp.bfloat16)
        sent = jnp.einsum("gtec,gtd->egcd", dispatch, h.astype(jnp.bfloat16))
        sent = self.pin(sent, None, "batch", None, "embed")
        sent = self.pin(sent, "experts", None, None, "embed")
        act = jax.nn.silu(jnp.einsum("egcd,edh->egch", sent, w_in.astype(jnp.bfloat16)))
        act = self.pin(act, "experts", None, None, "mlp")
        back = jnp.einsum("egch,ehd->egcd", act, w_out.astype(jnp.bfloat16))
        back = self.pin(back, "experts", None, None, "embed")
        back = self.pin(back, None, "batch", None, "embed")
        y = jnp.einsum("gtec,egcd->gtd", combine, back)
        return x + self.pin(y.astype(x.dtype), "batch", None, "embed"), None


class Ranker(nn.Module):
    mesh: Any

    @nn.compact
    def __call__(self, x):
        layers = nn.scan(
            nn.remat(ExpertLayer, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=LAYERS,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        x, _ = layers(self.mesh, name="layers")(x, None)
        head = self.param("head", nn.with_logical_partitioning(dense, ("embed", "items")), (DIM, ITEMS))
        pooled = jnp.mean(nn.RMSNorm(name="norm")(x), axis=1)
        return pooled @ head


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(4, 4), ("data", "model"))
    model = Ranker(mesh)
    tx = optax.adamw(1e-3, weight_decay=0.05)
    events = jax.ShapeDtypeStruct((GROUPS, LENGTH, DIM), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    labels = jax.ShapeDtypeStruct((GROUPS,), jnp.int32, sharding=NamedSharding(mesh, P("data")))

    boxed = jax.eval_shape(model.init, jax.random.key(0), events)["params"]
    params = nn.meta.unbox(boxed)
    param_sh = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)
    opt_state = jax.eval_shape(tx.init, params)
    whole = NamedSharding(mesh, P())
    opt_sh = optax.tree_map_params(
        tx, lambda _, s: s, opt_state, param_sh, transform_non_params=lambda _: whole
    )

    def loss_fn(params, events, labels):
        logits = model.apply({"params": params}, events)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def train_step(params, opt_state, events, labels):
        loss, grads = jax.value_and_grad(loss_fn)(params, events, labels)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    put = lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)
    step = jax.jit(train_step, out_shardings=(param_sh, opt_sh, whole), donate_argnums=(0, 1))
    return step, (jax.tree.map(put, params, param_sh), jax.tree.map(put, opt_state, opt_sh), events, labels)
