# mypy: ignore-errors
"""Clean. Masked language model with ZeRO-1: data parallel with whole weights for the forward and
backward pass, while Adam's moments and the update are divided over the devices."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

VOCAB, WIDTH, HEADS, DEPTH = 16384, 384, 6, 4
BATCH, LENGTH, PREDICTIONS = 32, 256, 40


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x):
        b, t, d = x.shape
        bf16 = dict(dtype=jnp.bfloat16)
        y = nn.LayerNorm(**bf16)(x)
        q, k, v = (nn.DenseGeneral((HEADS, d // HEADS), name=n, **bf16)(y) for n in "qkv")
        y = jax.nn.dot_product_attention(q, k, v)
        x = x + nn.Dense(d, name="out", **bf16)(y.reshape(b, t, d))
        y = nn.gelu(nn.Dense(4 * d, name="fc1", **bf16)(nn.LayerNorm(**bf16)(x)))
        return x + nn.Dense(d, name="fc2", **bf16)(y)


class MaskedLM(nn.Module):
    @nn.compact
    def __call__(self, ids, positions):
        table = nn.Embed(VOCAB, WIDTH, dtype=jnp.bfloat16)
        x = table(ids) + self.param("pos", nn.initializers.normal(0.02), (LENGTH, WIDTH)).astype(jnp.bfloat16)
        for i in range(DEPTH):
            x = nn.remat(Layer)(name=f"layer{i}")(x)
        # only the masked positions go through the vocabulary
        x = jnp.take_along_axis(x, positions[..., None], axis=1)
        return table.attend(nn.LayerNorm(dtype=jnp.bfloat16)(x)).astype(jnp.float32)


class Zero1:
    """Where a training state lives: `whole` for the weights, `part` for everything of the optimizer."""

    def __init__(self, mesh):
        self.mesh = mesh
        self.whole = NamedSharding(mesh, P())
        self.rows = NamedSharding(mesh, P("data"))

    def part(self, leaf):
        """Divide the first dimension that all devices share evenly."""
        for dim, size in enumerate(leaf.shape):
            if size % self.mesh.size == 0:
                return NamedSharding(self.mesh, P(*(None,) * dim, "data"))
        return self.whole

    def scatter(self, tree):
        return jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, self.part(a)), tree)

    def collect(self, tree):
        return jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, self.whole), tree)


def make_clean(devices):
    zero = Zero1(Mesh(np.array(devices), ("data",)))
    model = MaskedLM()
    schedule = optax.warmup_cosine_decay_schedule(0.0, 4e-4, 1000, 100_000)
    tx = optax.adamw(schedule, weight_decay=0.01)

    def loss_fn(params, batch):
        logits = model.apply({"params": params}, batch["ids"], batch["positions"])
        nll = optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"])
        return (nll * batch["weights"]).sum() / batch["weights"].sum()

    def step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        grads, mine = zero.scatter(grads), zero.scatter(params)
        updates, opt_state = tx.update(grads, opt_state, mine)
        params = zero.collect(optax.apply_updates(mine, updates))
        return params, opt_state, loss

    ids = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)
    masked = jax.ShapeDtypeStruct((BATCH, PREDICTIONS), jnp.int32)
    weights = jax.ShapeDtypeStruct((BATCH, PREDICTIONS), jnp.float32)
    batch = {"ids": ids, "positions": masked, "labels": masked, "weights": weights}
    params = jax.eval_shape(model.init, jax.random.key(0), ids, masked)["params"]
    opt_state = jax.eval_shape(tx.init, params)
    opt_sh = jax.tree.map(zero.part, opt_state)
    fn = jax.jit(
        step,
        in_shardings=(zero.whole, opt_sh, zero.rows),
        out_shardings=(zero.whole, opt_sh, zero.whole),
        donate_argnums=(0, 1),
    )
    return fn, (params, opt_state, batch)
