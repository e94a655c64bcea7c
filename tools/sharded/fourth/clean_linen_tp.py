# mypy: ignore-errors
"""Clean. A linen encoder with tensor parallelism through logical axis rules: weights split over model, activations
over data, layer norms replicated, the optimizer state split as the weights."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

RULES = (
    ("batch", "data"),
    ("length", None),
    ("embed", None),
    ("heads", "model"),
    ("kv", None),
    ("mlp", "model"),
    ("vocab", "model"),
)
DIM, HEADS, HEAD_DIM, MLP, VOCAB, LAYERS = 512, 8, 64, 2048, 16384, 2
BATCH, SEQ = 16, 128


def kernel(*names):
    return nn.with_logical_partitioning(nn.initializers.lecun_normal(), names)


class EncoderLayer(nn.Module):
    mesh: Mesh

    def act(self, x, *names):
        return nn.with_logical_constraint(x, names, rules=RULES, mesh=self.mesh)

    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm(name="ln1")(x)
        shape = (DIM, HEADS, HEAD_DIM)
        wq = self.param("wq", kernel("embed", "heads", "kv"), shape)
        wk = self.param("wk", kernel("embed", "heads", "kv"), shape)
        wv = self.param("wv", kernel("embed", "heads", "kv"), shape)
        wo = self.param("wo", kernel("heads", "kv", "embed"), (HEADS, HEAD_DIM, DIM))
        q, k, v = (
            self.act(jnp.einsum("bsd,dhk->bshk", h, w), "batch", "length", "heads", "kv") for w in (wq, wk, wv)
        )
        y = nn.dot_product_attention(q, k, v)
        x = self.act(x + jnp.einsum("bshk,hkd->bsd", y, wo), "batch", "length", "embed")
        h = nn.LayerNorm(name="ln2")(x)
        up = self.param("up", kernel("embed", "mlp"), (DIM, MLP))
        down = self.param("down", kernel("mlp", "embed"), (MLP, DIM))
        h = self.act(nn.gelu(h @ up), "batch", "length", "mlp")
        return self.act(x + h @ down, "batch", "length", "embed")


class MaskedLM(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, tokens):
        table = self.param("embedding", nn.with_logical_partitioning(nn.initializers.normal(0.02), ("vocab", "embed")),
                           (VOCAB, DIM))
        x = table[tokens] + self.param("pos", nn.initializers.zeros, (SEQ, DIM))
        x = nn.with_logical_constraint(x, ("batch", "length", "embed"), rules=RULES, mesh=self.mesh)
        for i in range(LAYERS):
            x = EncoderLayer(self.mesh, name=f"layer_{i}")(x)
        logits = nn.LayerNorm(name="ln_f")(x) @ table.T
        return nn.with_logical_constraint(logits, ("batch", "length", "vocab"), rules=RULES, mesh=self.mesh)


def masked_loss(logits, labels, weights):
    onehot = jax.nn.one_hot(labels, VOCAB, dtype=logits.dtype)
    nll = jax.nn.logsumexp(logits, axis=-1) - jnp.sum(logits * onehot, axis=-1)
    return jnp.sum(nll * weights) / jnp.maximum(jnp.sum(weights), 1.0)


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "model"))
    model = MaskedLM(mesh)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4))

    def init(key):
        params = model.init(key, jnp.zeros((BATCH, SEQ), jnp.int32))["params"]
        return {"params": params, "opt": tx.init(params), "step": jnp.zeros((), jnp.int32)}

    boxed = jax.eval_shape(init, jax.random.key(0))
    shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)
    state = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), nn.meta.unbox(boxed), shardings
    )

    def train_step(state, batch):
        def loss_fn(params):
            logits = model.apply({"params": params}, batch["inputs"])
            return masked_loss(logits, batch["labels"], batch["weights"])

        loss, grads = jax.value_and_grad(loss_fn)(state["params"])
        updates, opt = tx.update(grads, state["opt"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "opt": opt, "step": state["step"] + 1}, loss

    rows = NamedSharding(mesh, P("data", None))
    ids = jax.ShapeDtypeStruct((BATCH, SEQ), jnp.int32, sharding=rows)
    batch = {"inputs": ids, "labels": ids, "weights": jax.ShapeDtypeStruct((BATCH, SEQ), jnp.float32, sharding=rows)}
    step = jax.jit(train_step, donate_argnums=(0,), out_shardings=(shardings, NamedSharding(mesh, P())))
    return step, (state, batch)
