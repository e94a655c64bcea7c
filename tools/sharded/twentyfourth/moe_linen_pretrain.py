# mypy: ignore-errors
"""Fault: dropped. The rules name the logical axis "experts", but the modules annotate "expert": the rule matches
nothing, and the expert weights (and their Adam moments) are whole along the expert dimension.

Pretraining step of a mixture-of-experts language model in flax linen with logical axis rules.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

RULES = (
    ("batch", ("data", "expert")),
    ("vocab", "model"),
    ("embed", None),
    ("heads", "model"),
    ("mlp", "model"),
    ("experts", "expert"),  # FAULT
)

VOCAB, WIDTH, HIDDEN, HEADS, EXPERTS, LAYERS = 8192, 1024, 4096, 8, 16, 2
BATCH, LENGTH, CAPACITY = 16, 256, 32


def weight(*names):
    return nn.with_logical_partitioning(nn.initializers.lecun_normal(), names)


class Attention(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, x):
        b, s, d = x.shape
        wqkv = self.param("qkv", weight("embed", None, "heads"), (d, 3, d))
        wout = self.param("out", weight("heads", "embed"), (d, d))
        q, k, v = (t[:, :, 0].reshape(b, s, HEADS, -1) for t in jnp.split(
            jnp.einsum("bsd,dke->bske", x, wqkv.astype(x.dtype)), 3, axis=2))
        probs = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * (d // HEADS) ** -0.5)
        return jnp.einsum("bhqk,bkhd->bqhd", probs.astype(x.dtype), v).reshape(b, s, d) @ wout.astype(x.dtype)


class Experts(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, x):
        b, s, d = x.shape
        router = self.param("router", weight("embed", None), (d, EXPERTS))
        wi = self.param("wi", weight("expert", "embed", "mlp"), (EXPERTS, d, HIDDEN))  # FAULT
        wo = self.param("wo", weight("expert", "mlp", "embed"), (EXPERTS, HIDDEN, d))  # FAULT
        gates = jax.nn.softmax((x @ router.astype(x.dtype)).astype(jnp.float32))
        best = jnp.argmax(gates, -1)
        mask = jax.nn.one_hot(best, EXPERTS, dtype=jnp.int32)
        slot = jnp.cumsum(mask, axis=1) * mask - 1
        dispatch = jax.nn.one_hot(slot, CAPACITY, dtype=x.dtype)
        combine = dispatch * jnp.max(gates, -1)[..., None, None].astype(x.dtype)
        inputs = jnp.einsum("bsec,bsd->ebcd", dispatch, x)
        hidden = jax.nn.gelu(jnp.einsum("ebcd,edf->ebcf", inputs, wi.astype(x.dtype)))
        outputs = jnp.einsum("ebcf,efd->ebcd", hidden, wo.astype(x.dtype))
        return jnp.einsum("bsec,ebcd->bsd", combine, outputs)


class Model(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, tokens):
        embed = self.param("embed", weight("vocab", "embed"), (VOCAB, WIDTH))
        x = embed.astype(jnp.bfloat16)[tokens]
        for i in range(LAYERS):
            x = nn.with_logical_constraint(x, ("batch", None, "embed"), rules=RULES, mesh=self.mesh)
            x = x + Attention(self.mesh, name=f"attention_{i}")(nn.RMSNorm(name=f"norm_a{i}")(x).astype(x.dtype))
            if i % 2:
                x = x + Experts(self.mesh, name=f"experts_{i}")(nn.RMSNorm(name=f"norm_e{i}")(x).astype(x.dtype))
        return x @ embed.T.astype(x.dtype)


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(2, 4, 2), ("data", "expert", "model"))
    model = Model(mesh)
    tokens_sharding = NamedSharding(mesh, P(("data", "expert")))

    def create():
        variables = model.init(jax.random.key(0), jnp.zeros((BATCH, LENGTH), jnp.int32))
        return TrainState.create(apply_fn=model.apply, params=variables["params"], tx=optax.adam(1e-3))

    abstract = jax.eval_shape(create)
    shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(abstract), mesh, RULES)
    state = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        nn.unbox(abstract), shardings)

    def loss(params, tokens):
        logits = model.apply({"params": params}, tokens).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()

    def step(state, tokens):
        value, grads = jax.value_and_grad(loss)(state.params, tokens)
        return state.apply_gradients(grads=grads), value

    jitted = jax.jit(step, in_shardings=(shardings, tokens_sharding),
                     out_shardings=(shardings, NamedSharding(mesh, P())), donate_argnums=0)
    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32, sharding=tokens_sharding)
    return jitted, (state, tokens)
