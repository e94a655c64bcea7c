# mypy: ignore-errors
"""Fault: dropped. The pair representation is passed through with_sharding_constraint but the result is thrown away,
so the [N, N, c] tensors are never split over the row axis."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

RESIDUES = 256
SINGLE, PAIR, HIDDEN = 128, 32, 32
BLOCKS = 2
BINS = 16
BATCH = 4
PAIR_SPEC = P("data", "row", None, None)


def norm(x):
    mu = jnp.mean(x, axis=-1, keepdims=True)
    return (x - mu) * jax.lax.rsqrt(jnp.var(x, axis=-1, keepdims=True) + 1e-5)


def init_pair(params, single, offsets):
    left = single @ params["left"]
    right = single @ params["right"]
    pair = left[:, :, None, :] + right[:, None, :, :]
    return pair + params["relpos"][offsets]


def triangle_update(p, pair):
    z = norm(pair)
    a = jax.nn.sigmoid(z @ p["ga"]) * (z @ p["a"])
    b = jax.nn.sigmoid(z @ p["gb"]) * (z @ p["b"])
    mixed = jnp.einsum("bikc,bjkc->bijc", a, b)
    return pair + norm(mixed) @ p["o"]


def transition(p, pair):
    return pair + jax.nn.relu(norm(pair) @ p["t1"]) @ p["t2"]


def distogram_loss(params, pair, coords):
    logits = (pair + jnp.swapaxes(pair, 1, 2)) @ params["head"]
    d2 = jnp.sum((coords[:, :, None] - coords[:, None]) ** 2, axis=-1)
    edges = jnp.linspace(2.0, 22.0, BINS - 1) ** 2
    target = jnp.sum(d2[..., None] > edges, axis=-1)
    logp = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.mean(jnp.sum(logp * jax.nn.one_hot(target, BINS), axis=-1))


def relative_offsets():
    i = np.arange(RESIDUES)
    return jnp.asarray(np.clip(i[:, None] - i[None, :], -32, 32) + 32)


def param_structs(mesh):
    def w(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P()))

    tri = {k: w(PAIR, HIDDEN) for k in ("a", "b", "ga", "gb")}
    blk = {"tri": {**tri, "o": w(HIDDEN, PAIR)}, "t1": w(PAIR, 2 * PAIR), "t2": w(2 * PAIR, PAIR)}
    return {
        "left": w(SINGLE, PAIR),
        "right": w(SINGLE, PAIR),
        "relpos": w(65, PAIR),
        "head": w(PAIR, BINS),
        "blocks": [blk for _ in range(BLOCKS)],
    }


def argument_structs(mesh):
    by_batch = NamedSharding(mesh, P("data"))
    single = jax.ShapeDtypeStruct((BATCH, RESIDUES, SINGLE), jnp.float32, sharding=by_batch)
    coords = jax.ShapeDtypeStruct((BATCH, RESIDUES, 3), jnp.float32, sharding=by_batch)
    return param_structs(mesh), single, coords


def sgd(params, grads):
    return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads)


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "row"))

    def loss_fn(params, single, coords):
        pair = init_pair(params, single, relative_offsets())
        jax.lax.with_sharding_constraint(pair, PAIR_SPEC)  # FAULT
        for p in params["blocks"]:
            pair = triangle_update(p["tri"], pair)
            pair = transition(p, pair)
        return distogram_loss(params, pair, coords)

    def step(params, single, coords):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            loss, grads = jax.value_and_grad(loss_fn)(params, single, coords)
        return sgd(params, grads), loss

    return jax.jit(step, donate_argnums=(0,)), argument_structs(mesh)


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "row"))

    def loss_fn(params, single, coords):
        pair = init_pair(params, single, relative_offsets())
        pair = jax.lax.with_sharding_constraint(pair, PAIR_SPEC)
        for p in params["blocks"]:
            pair = triangle_update(p["tri"], pair)
            pair = transition(p, pair)
            pair = jax.lax.with_sharding_constraint(pair, PAIR_SPEC)
        return distogram_loss(params, pair, coords)

    def step(params, single, coords):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            loss, grads = jax.value_and_grad(loss_fn)(params, single, coords)
        return sgd(params, grads), loss

    return jax.jit(step, donate_argnums=(0,)), argument_structs(mesh)
