# mypy: ignore-errors
"""Clean. A radiance field trained by plain data parallelism: the network has half a million
weights and is whole on every chip with its moments; rays are what is split.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclass(frozen=True)
class FieldConfig:
    width: int = 256
    depth: int = 8
    skip: int = 4
    position_bands: int = 10
    direction_bands: int = 4
    samples: int = 128
    near: float = 2.0
    far: float = 6.0
    rays: int = 16384
    groups: int = 4
    schedule: Any = field(default_factory=lambda: optax.exponential_decay(5e-4, 250_000, 0.1))


class State(NamedTuple):
    params: dict
    opt: Any


class Rays(NamedTuple):
    origin: jax.Array
    direction: jax.Array
    colour: jax.Array


def fourier(x, bands):
    angles = x[..., None, :] * (2.0 ** jnp.arange(bands))[:, None]
    waves = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return jnp.concatenate([x, waves.reshape(*x.shape[:-1], -1)], axis=-1)


def init_params(cfg, key):
    where, way = 3 + 6 * cfg.position_bands, 3 + 6 * cfg.direction_bands
    sizes = {}
    for i in range(cfg.depth):
        inner = where if i == 0 else cfg.width
        sizes[f"trunk{i}"] = (inner + where * (i == cfg.skip), cfg.width)
    sizes["density"], sizes["bottleneck"] = (cfg.width, 1), (cfg.width, cfg.width)
    sizes["view"], sizes["colour"] = (cfg.width + way, cfg.width // 2), (cfg.width // 2, 3)
    keys = jax.random.split(key, len(sizes))
    glorot = jax.nn.initializers.glorot_uniform()
    return {
        name: {"w": glorot(k, size), "b": jnp.zeros(size[1])}
        for k, (name, size) in zip(keys, sizes.items(), strict=True)
    }


def radiance(cfg, params, points, directions):
    def dense(name, x):
        return x @ params[name]["w"].astype(x.dtype) + params[name]["b"].astype(x.dtype)

    where = fourier(points, cfg.position_bands).astype(jnp.bfloat16)
    x = where
    for i in range(cfg.depth):
        x = jnp.concatenate([x, where], axis=-1) if i == cfg.skip else x
        x = jax.nn.relu(dense(f"trunk{i}", x))
    density = jax.nn.softplus(dense("density", x)[..., 0].astype(jnp.float32))
    way = fourier(directions, cfg.direction_bands).astype(x.dtype)
    way = jnp.broadcast_to(way[..., None, :], (*x.shape[:-1], way.shape[-1]))
    x = jnp.concatenate([dense("bottleneck", x), way], axis=-1)
    x = jax.nn.relu(dense("view", x))
    return density, jax.nn.sigmoid(dense("colour", x).astype(jnp.float32))


def render(cfg, params, rays, jitter):
    """Composites stratified samples along every ray over a white background."""
    step = (cfg.far - cfg.near) / cfg.samples
    depth = cfg.near + step * (jnp.arange(cfg.samples) + jitter[..., None])
    points = rays.origin[..., None, :] + depth[..., None] * rays.direction[..., None, :]
    density, colour = radiance(cfg, params, points, rays.direction)
    blocked = density * step
    before = jnp.cumsum(blocked, axis=-1) - blocked
    weight = jnp.exp(-before) * (1.0 - jnp.exp(-blocked))
    mixed = jnp.sum(weight[..., None] * colour, axis=-2)
    return mixed + (1.0 - jnp.sum(weight, axis=-1, keepdims=True))


def make_clean(devices):
    cfg = FieldConfig()
    mesh = Mesh(np.array(devices).reshape(-1), ("data",))
    whole = NamedSharding(mesh, P())
    split = NamedSharding(mesh, P(None, "data"))  # [group, ray of the group, ...]
    tx = optax.adam(cfg.schedule)

    def loss_fn(params, rays, key):
        jitter = jax.random.uniform(key, rays.colour.shape[:1])
        return jnp.mean(jnp.square(render(cfg, params, rays, jitter) - rays.colour))

    def step(state, rays, key):
        def accumulate(total, group):
            part = jax.value_and_grad(loss_fn)(state.params, *group)
            return jax.tree.map(jnp.add, total, part), None

        zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, state.params))
        keys = jax.random.split(key, cfg.groups)
        (loss, grads), _ = jax.lax.scan(accumulate, zero, (rays, keys))
        grads = jax.tree.map(lambda g: g / cfg.groups, grads)
        updates, opt = tx.update(grads, state.opt, state.params)
        params = optax.apply_updates(state.params, updates)
        return State(params, opt), 10.0 * jnp.log10(cfg.groups / loss)

    def struct(leaf, sharding):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    params = jax.eval_shape(lambda key: init_params(cfg, key), jax.random.key(0))
    state = State(params, jax.eval_shape(tx.init, params))
    state = jax.tree.map(lambda leaf: struct(leaf, whole), state)
    shape = (cfg.groups, cfg.rays // cfg.groups, 3)
    rays = Rays(*(jax.ShapeDtypeStruct(shape, jnp.float32, sharding=split) for _ in range(3)))
    key = struct(jax.eval_shape(jax.random.key, 0), whole)
    return jax.jit(step, donate_argnums=0, out_shardings=(whole, whole)), (state, rays, key)
