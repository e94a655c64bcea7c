# mypy: ignore-errors
"""Clean. A linen transformer with partitioning metadata, tensor parallel over `model` and data parallel over
`data`; the optimizer state is split over both (ZeRO-1)."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

VOCAB, DIM, HEADS, FF, DEPTH, BATCH, LENGTH = 16384, 1024, 8, 4096, 2, 16, 512


def kernel(*axes):
    return nn.with_partitioning(nn.initializers.lecun_normal(), axes)


class Pin(nn.Module):
    mesh: Mesh

    def pin(self, x, *axes):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, P(*axes)))

    def dense(self, features, name, *axes):
        return nn.Dense(features, use_bias=False, dtype=jnp.bfloat16, kernel_init=kernel(*axes), name=name)


class Attention(Pin):
    @nn.compact
    def __call__(self, x):
        split = lambda y: self.pin(y.reshape(*x.shape[:2], HEADS, -1), "data", None, "model", None)  # noqa: E731
        q, k, v = (split(self.dense(DIM, n, None, "model")(x)) for n in ("query", "key", "value"))
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / np.sqrt(DIM // HEADS)
        s = jnp.where(jnp.tril(jnp.ones((x.shape[1],) * 2, bool)), s, -1e30)
        o = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s).astype(x.dtype), v)
        return self.dense(DIM, "out", "model", None)(o.reshape(x.shape))


class Block(Pin):
    @nn.compact
    def __call__(self, x):
        # between the matrices the sequence is split over `model`
        x = self.pin(x + Attention(self.mesh, name="attn")(nn.RMSNorm(dtype=jnp.bfloat16)(x)), "data", "model", None)
        h = self.dense(FF, "up", None, "model")(nn.RMSNorm(dtype=jnp.bfloat16)(x))
        h = self.dense(DIM, "down", "model", None)(nn.gelu(self.pin(h, "data", None, "model")))
        return self.pin(x + h, "data", "model", None)


class Decoder(Pin):
    @nn.compact
    def __call__(self, ids):
        init = nn.with_partitioning(nn.initializers.normal(0.02), ("model", None))
        x = nn.Embed(VOCAB, DIM, dtype=jnp.bfloat16, embedding_init=init, name="embed")(ids)
        x = self.pin(x, "data", "model", None)
        for i in range(DEPTH):
            x = nn.remat(Block)(self.mesh, name=f"block{i}")(x)
        logits = self.dense(VOCAB, "head", None, "model")(nn.RMSNorm(dtype=jnp.bfloat16)(x))
        return self.pin(logits, "data", None, "model")


def zero1(spec, leaf, size):
    """Add `data` to the first dimension that is still whole and divisible."""
    axes = list(spec) + [None] * (leaf.ndim - len(spec))
    for i, a in enumerate(axes):
        if a is None and leaf.shape[i] % size == 0:
            axes[i] = "data"
            return P(*axes)
    return spec


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    model = Decoder(mesh)
    tx = optax.adamw(3e-4, weight_decay=0.1)
    boxed = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((BATCH, LENGTH), jnp.int32)))["params"]
    specs, params = nn.get_partition_spec(boxed), nn.meta.unbox(boxed)
    moments = jax.tree.map(lambda s, p: zero1(s, p, 4), specs, params, is_leaf=lambda s: isinstance(s, P))
    opt_state = jax.eval_shape(tx.init, params)

    def named(tree):
        return jax.tree.map(lambda s: NamedSharding(mesh, s), tree, is_leaf=lambda s: isinstance(s, P))

    def attach(tree, shardings):
        return jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), tree, shardings)

    moment_shardings = named(moments)
    opt_specs = optax.tree_map_params(
        tx, lambda _, s: s, opt_state, moment_shardings, transform_non_params=lambda _: NamedSharding(mesh, P())
    )
    rows = NamedSharding(mesh, P("data"))

    def loss_fn(params, ids):
        logits = model.apply({"params": params}, ids[:, :-1]).astype(jnp.float32)
        hit = jnp.sum(jnp.where(ids[:, 1:, None] == jnp.arange(VOCAB), logits, 0), -1)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - hit)

    def step(params, opt_state, ids):
        loss, grads = jax.value_and_grad(loss_fn)(params, ids)
        grads = jax.lax.with_sharding_constraint(grads, moment_shardings)  # reduce-scatter
        mine = jax.lax.with_sharding_constraint(params, moment_shardings)
        updates, opt_state = tx.update(grads, opt_state, mine)
        return optax.apply_updates(mine, updates), opt_state, loss

    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(named(specs), opt_specs, NamedSharding(mesh, P())))
    ids = jax.ShapeDtypeStruct((BATCH, LENGTH + 1), jnp.int32, sharding=rows)
    return fn, (attach(params, named(specs)), attach(opt_state, opt_specs), ids)
