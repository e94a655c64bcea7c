# mypy: ignore-errors
"""Fault: gathered. The loss gathers the sharded weights of all mixer layers before it begins, and the
full copies stay on every device from there to the end of the backward pass."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


class MixerLayer(eqx.Module):
    time_in: jax.Array
    time_out: jax.Array
    chan_in: jax.Array
    chan_out: jax.Array

    def __init__(self, frames, width, key):
        ks = jax.random.split(key, 4)
        self.time_in = jax.random.normal(ks[0], (frames, 2 * frames)) * 0.02
        self.time_out = jax.random.normal(ks[1], (2 * frames, frames)) * 0.02
        self.chan_in = jax.random.normal(ks[2], (width, 4 * width)) * 0.02
        self.chan_out = jax.random.normal(ks[3], (4 * width, width)) * 0.02

    def __call__(self, x):
        t = jax.nn.gelu(jnp.einsum("bfc,fg->bgc", x, self.time_in))
        x = x + jnp.einsum("bgc,gf->bfc", t, self.time_out)
        return x + jax.nn.gelu(x @ self.chan_in) @ self.chan_out


class AudioMixer(eqx.Module):
    layers: MixerLayer  # stacked over depth
    head: jax.Array

    def __init__(self, depth, frames, width, classes, key):
        k1, k2 = jax.random.split(key)
        make = lambda k: MixerLayer(frames, width, k)
        self.layers = eqx.filter_vmap(make)(jax.random.split(k1, depth))
        self.head = jax.random.normal(k2, (width, classes)) * 0.02


def fsdp_spec(leaf):
    return P(None, "fsdp") if leaf.ndim == 3 else P("fsdp")


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    whole = NamedSharding(mesh, P())
    by_batch = NamedSharding(mesh, P("fsdp"))

    def gather(tree):
        return jax.tree.map(
            lambda w: lax.with_sharding_constraint(w.astype(jnp.bfloat16), whole), tree
        )

    @jax.checkpoint
    def run_layer(x, layer):
        x = layer(x)
        return lax.with_sharding_constraint(x, by_batch), None

    def loss_fn(model, x, labels):
        model = gather(model)  # FAULT
        x, _ = lax.scan(run_layer, x, model.layers)
        logits = (x.mean(axis=1) @ model.head).astype(jnp.float32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1))

    def train_step(model, x, labels):
        loss, grads = jax.value_and_grad(loss_fn)(model, x, labels)
        model = jax.tree.map(lambda w, g: w - 1e-2 * g, model, grads)
        return model, loss

    shapes = eqx.filter_eval_shape(AudioMixer, 8, 512, 1024, 128, jax.random.key(0))
    model = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(
            a.shape, a.dtype, sharding=NamedSharding(mesh, fsdp_spec(a))
        ),
        shapes,
    )
    shardings = jax.tree.map(lambda a: a.sharding, model)
    x = jax.ShapeDtypeStruct((8, 512, 1024), jnp.bfloat16, sharding=by_batch)
    labels = jax.ShapeDtypeStruct((8,), jnp.int32, sharding=by_batch)
    step = jax.jit(train_step, donate_argnums=0, out_shardings=(shardings, whole))
    return step, (model, x, labels)
