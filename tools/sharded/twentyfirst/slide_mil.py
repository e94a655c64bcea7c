# mypy: ignore-errors
"""Fault: replicated. The tiles are spread over the `data` axis only; along `fsdp` four chips each hold and
compute the same tiles, so activations and inputs take four times their share.

Whole-slide pathology: a patch mixer encodes the tiles of a slide, gated attention pooling (multiple instance
learning) predicts the grade. Equinox, hybrid sharding: weights split over `fsdp`, gathered layer by layer.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class Parallel:
    data: int = 4
    fsdp: int = 4
    tile_axes: tuple = ("data",)  # FAULT
    weight_axis: str = "fsdp"

    def mesh(self, devices):
        return Mesh(np.array(devices).reshape(self.data, self.fsdp), ("data", "fsdp"))


SLIDES, TILES, PATCHES, PIXELS = 4, 128, 64, 768
DIM, HIDDEN, DEPTH, GRADES = 1024, 4096, 6, 6


class Mixer(eqx.Module):
    across: jax.Array
    up: jax.Array
    down: jax.Array

    def __init__(self, key):
        a, b, c = jax.random.split(key, 3)
        self.across = jax.random.normal(a, (PATCHES, PATCHES)) / PATCHES**0.5
        self.up = jax.random.normal(b, (DIM, HIDDEN)) / DIM**0.5
        self.down = jax.random.normal(c, (HIDDEN, DIM)) / HIDDEN**0.5

    def __call__(self, x):
        x = x + jnp.einsum("npd,pq->nqd", norm(x), self.across)
        return x + jax.nn.gelu(norm(x) @ self.up) @ self.down


class SlideGrader(eqx.Module):
    stem: jax.Array
    mixers: Mixer  # stacked
    gate: jax.Array
    tanh: jax.Array
    score: jax.Array
    grade: jax.Array

    def __init__(self, key):
        ks = jax.random.split(key, 6)
        self.stem = jax.random.normal(ks[0], (PIXELS, DIM)) / PIXELS**0.5
        self.mixers = eqx.filter_vmap(Mixer)(jax.random.split(ks[1], DEPTH))
        self.gate = jax.random.normal(ks[2], (DIM, 256)) / DIM**0.5
        self.tanh = jax.random.normal(ks[3], (DIM, 256)) / DIM**0.5
        self.score = jax.random.normal(ks[4], (256,)) / 16
        self.grade = jax.random.normal(ks[5], (DIM, GRADES)) / DIM**0.5


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def make_loss(mesh, parallel):
    tiles = NamedSharding(mesh, P(parallel.tile_axes))  # FAULT
    whole = NamedSharding(mesh, P())
    pin = jax.lax.with_sharding_constraint

    @jax.checkpoint
    def encode(x, mixer):
        mixer = jax.tree.map(lambda w: pin(w.astype(jnp.bfloat16), whole), mixer)
        return pin(mixer(x), tiles), None

    def loss(model, pixels, grades):
        """pixels (slides * tiles, patches, pixels), the tiles of a slide one after the other."""
        x = pin(pixels.astype(jnp.bfloat16) @ pin(model.stem.astype(jnp.bfloat16), whole), tiles)
        x, _ = jax.lax.scan(encode, x, model.mixers)
        tile = norm(x).mean(1).astype(jnp.float32)
        attention = (jnp.tanh(tile @ model.tanh) * jax.nn.sigmoid(tile @ model.gate)) @ model.score
        weight = jax.nn.softmax(attention.reshape(SLIDES, TILES), axis=1)
        slide = jnp.einsum("st,std->sd", weight, tile.reshape(SLIDES, TILES, DIM))
        logits = slide @ model.grade
        return optax.softmax_cross_entropy_with_integer_labels(logits, grades).mean()

    return loss, tiles, whole


def make_faulty(devices):
    parallel = Parallel()
    mesh = parallel.mesh(devices)
    loss_fn, tiles, whole = make_loss(mesh, parallel)
    tx = optax.adamw(2e-4, b2=0.98)

    def place(leaf):
        """The last dimension but one of the large matrices over fsdp."""
        if leaf.size < 2**18:
            return whole
        return NamedSharding(mesh, P(*(None,) * (leaf.ndim - 2), parallel.weight_axis))

    def abstract(tree):
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place(x)), tree)

    model = abstract(jax.eval_shape(SlideGrader, jax.random.key(0)))
    opt_state = abstract(jax.eval_shape(tx.init, model))

    def step(model, opt_state, pixels, grades):
        loss, grads = jax.value_and_grad(loss_fn)(model, pixels, grades)
        grads = jax.lax.with_sharding_constraint(grads, jax.tree.map(place, grads))
        updates, opt_state = tx.update(grads, opt_state, model)
        return eqx.apply_updates(model, updates), opt_state, loss

    pixels = jax.ShapeDtypeStruct((SLIDES * TILES, PATCHES, PIXELS), jnp.bfloat16, sharding=tiles)
    grades = jax.ShapeDtypeStruct((SLIDES,), jnp.int32, sharding=whole)
    out = jax.tree.map(lambda x: x.sharding, (model, opt_state))
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(*out, whole))
    return fn, (model, opt_state, pixels, grades)
