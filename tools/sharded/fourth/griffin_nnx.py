# mypy: ignore-errors
"""Fault: stack. The residual stream is constrained with a logical name that the rule table does not have, so what the
scan over layers stacks for the backward pass is whole along data."""
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

D_MODEL, D_RNN, D_FF = 512, 768, 1536
BATCH, SEQ, LAYERS, VOCAB = 32, 1024, 8, 8192

RULES = dict(
    batch="data", length=None, embed=None, rnn="model", mlp="model", vocab="model", layers=None
)


class Sharder:
    """Turns logical axis names into constraints on one mesh."""

    def __init__(self, mesh, rules):
        self.mesh, self.rules = mesh, rules

    def sharding(self, *names):
        return NamedSharding(self.mesh, P(*[self.rules.get(n) for n in names]))  # FAULT

    def __call__(self, x, *names):
        return jax.lax.with_sharding_constraint(x, self.sharding(*names))


class GriffinLayer(nnx.Module):
    """A gated linear recurrence followed by a gated MLP."""

    def __init__(self, shard, *, rngs):
        def param(*shape):
            return nnx.Param(nnx.initializers.lecun_normal()(rngs.params(), shape, jnp.float32))

        self.shard = shard
        self.w_x = param(D_MODEL, D_RNN)
        self.w_gate = param(D_MODEL, D_RNN)
        self.w_a = param(D_MODEL, D_RNN)
        self.w_out = param(D_RNN, D_MODEL)
        self.up = param(D_MODEL, D_FF)
        self.down = param(D_FF, D_MODEL)
        self.scale1 = nnx.Param(jnp.ones((D_MODEL,)))
        self.scale2 = nnx.Param(jnp.ones((D_MODEL,)))

    def residual(self, x):
        return self.shard(x, "act_batch", "length", "embed")  # FAULT

    def recurrence(self, u, log_a):
        def combine(left, right):
            return left[0] * right[0], right[0] * left[1] + right[1]

        a = jnp.exp(log_a)
        return jax.lax.associative_scan(combine, (a, jnp.sqrt(1 - a * a) * u), axis=1)[1]

    def __call__(self, x):
        x = self.residual(x)
        h = rms(x, self.scale1[...])
        u = self.shard(h @ cast(self.w_x), "batch", "length", "rnn")
        gate = jax.nn.gelu(self.shard(h @ cast(self.w_gate), "batch", "length", "rnn"))
        log_a = -8.0 * jax.nn.softplus(self.shard(h @ cast(self.w_a), "batch", "length", "rnn"))
        x = x + (gate * self.recurrence(u, log_a)) @ cast(self.w_out)
        h = self.shard(rms(x, self.scale2[...]) @ cast(self.up), "batch", "length", "mlp")
        return self.residual(x + jax.nn.gelu(h) @ cast(self.down))


def cast(p):
    return p[...].astype(jnp.bfloat16)


def rms(x, scale):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


LEAF_AXES = {
    "w_x": ("layers", "embed", "rnn"), "w_gate": ("layers", "embed", "rnn"), "w_a": ("layers", "embed", "rnn"),
    "w_out": ("layers", "rnn", "embed"), "up": ("layers", "embed", "mlp"), "down": ("layers", "mlp", "embed"),
    "scale1": ("layers", "embed"), "scale2": ("layers", "embed"),
}


def build(devices, rules):
    mesh = Mesh(np.array(devices).reshape(8, 2), ("data", "model"))
    shard = Sharder(mesh, rules)

    @nnx.split_rngs(splits=LAYERS)
    @nnx.vmap(in_axes=0, out_axes=0)
    def create(rngs):
        return GriffinLayer(shard, rngs=rngs)

    graphdef, state = nnx.split(nnx.eval_shape(lambda: create(nnx.Rngs(0))), nnx.Param)

    def place(path, leaf):
        name = next(k.key for k in path if getattr(k, "key", None) in LEAF_AXES)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=shard.sharding(*LEAF_AXES[name]))

    state = jax.tree_util.tree_map_with_path(place, state)
    embed = jax.ShapeDtypeStruct((VOCAB, D_MODEL), jnp.float32, sharding=shard.sharding("vocab", "embed"))
    tokens = jax.ShapeDtypeStruct((BATCH, SEQ), jnp.int32, sharding=shard.sharding("batch", "length"))

    def loss_fn(params, tokens):
        embed = params["embed"].astype(jnp.bfloat16)
        x = shard(embed[tokens], "batch", "length", "embed")
        body = jax.checkpoint(lambda x, layer: (nnx.merge(graphdef, layer)(x), None))
        x, _ = jax.lax.scan(body, x, params["layers"])  # FAULT
        logits = shard(x[:, :-1] @ embed.T, "batch", "length", "vocab").astype(jnp.float32)
        picked = jnp.sum(logits * jax.nn.one_hot(tokens[:, 1:], VOCAB), axis=-1)
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)

    def step(params, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), loss

    return jax.jit(step, donate_argnums=(0,)), ({"embed": embed, "layers": state}, tokens)


def make_faulty(devices):
    return build(devices, RULES)


def make_fixed(devices):
    return build(devices, {**RULES, "act_batch": "data"})
