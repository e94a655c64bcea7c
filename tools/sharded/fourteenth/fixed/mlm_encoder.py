# mypy: ignore-errors
"""Fixed."""
import functools
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

VOCAB, DIM, MLP, HEADS, LAYERS = 8192, 1024, 4096, 16, 24
BATCH, LENGTH = 64, 256

RULES = (
    ("batch", "data"),
    ("residual_length", "tensor"),
    ("length", None),
    ("vocab", "tensor"),
    ("embed", "data"),
    ("heads", "tensor"),
    ("mlp", "tensor"),
    ("act_embed", None),
    ("act_heads", "tensor"),
    ("act_mlp", "tensor"),
    ("kv", None),
    ("layers", None),
)

weight = lambda *names: nn.with_logical_partitioning(nn.initializers.normal(0.02), names)


class Encoder(nn.Module):
    mesh: Mesh

    def pin(self, x, *names):
        return nn.with_logical_constraint(x, names, mesh=self.mesh)

    @nn.compact
    def __call__(self, tokens):
        table = self.param("embedding", weight("vocab", "embed"), (VOCAB, DIM)).astype(jnp.bfloat16)
        x = self.pin(table[tokens], "batch", "residual_length", "act_embed")
        layer = nn.remat(Layer, prevent_cse=False, policy=jax.checkpoint_policies.nothing_saveable)
        stack = nn.scan(layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=LAYERS,
                        metadata_params={nn.PARTITION_NAME: "layers"})
        x, _ = stack(self.mesh, name="stack")(x, None)
        x = nn.LayerNorm(dtype=jnp.bfloat16)(self.pin(x, "batch", "length", "act_embed"))
        return self.pin(x @ table.T, "batch", "length", "vocab")


class Layer(nn.Module):
    mesh: Mesh
    pin = Encoder.pin

    @nn.compact
    def __call__(self, x, _):
        head_dim = DIM // HEADS
        p = lambda name, names, shape: self.param(name, weight(*names), shape).astype(jnp.bfloat16)
        h = self.pin(nn.LayerNorm(dtype=jnp.bfloat16)(x), "batch", "length", "act_embed")
        qkv = jnp.einsum("bld,dthk->tblhk", h, p("qkv", ("embed", None, "heads", "kv"), (DIM, 3, HEADS, head_dim)))
        q, k, v = self.pin(qkv, None, "batch", "length", "act_heads", "kv")
        a = jax.nn.dot_product_attention(q, k, v)
        a = jnp.einsum("blhk,hkd->bld", a, p("out", ("heads", "kv", "embed"), (HEADS, head_dim, DIM)))
        x = self.pin(x + a, "batch", "residual_length", "act_embed")
        h = self.pin(nn.LayerNorm(dtype=jnp.bfloat16)(x), "batch", "length", "act_embed")
        h = nn.gelu(h @ p("wi", ("embed", "mlp"), (DIM, MLP)))
        h = self.pin(h, "batch", "length", "act_mlp") @ p("wo", ("mlp", "embed"), (MLP, DIM))
        return self.pin(x + h, "batch", "residual_length", "act_embed"), None


def loss_fn(apply, params, batch):
    logits = apply({"params": params}, batch["tokens"]).astype(jnp.float32)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
    return (losses * batch["masked"]).sum() / batch["masked"].sum()


def train_step(state, batch):
    with nn.logical_axis_rules(RULES):
        loss, grads = jax.value_and_grad(functools.partial(loss_fn, state.apply_fn))(state.params, batch)
    return state.apply_gradients(grads=grads), loss


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "tensor"))
    model = Encoder(mesh)
    tx = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 3e-4, 1000, 100_000), weight_decay=0.01)

    def init(rng):
        params = model.init(rng, jnp.zeros((4, LENGTH), jnp.int32))["params"]
        return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)

    with nn.logical_axis_rules(RULES):
        boxed = jax.eval_shape(init, jax.random.key(0))
        shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)
    state = nn.unbox(boxed)
    rows = NamedSharding(mesh, P("data", None))
    batch = {
        "tokens": jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32),
        "targets": jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32),
        "masked": jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.float32),
    }
    fn = jax.jit(train_step, in_shardings=(shardings, rows), out_shardings=(shardings, None), donate_argnums=0)
    return fn, (state, batch)
