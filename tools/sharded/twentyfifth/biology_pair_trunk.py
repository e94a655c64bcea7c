# mypy: ignore-errors
"""Fault: reshard. The switch between row blocks and column blocks of the pair representation collects the whole
[residues, residues, channels] array on every device and cuts the wanted block out of it; an all-to-all moves only
what each device needs.

The pair trunk of a structure predictor at inference: axial attention over the rows and the columns of the pair
representation, with the residues split over all sixteen chips, and a distogram head."""
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class TrunkConfig:
    residues: int = 1536
    channels: int = 128
    heads: int = 4
    blocks: int = 2
    lines_at_once: int = 2
    bins: int = 64


class LineAttention(eqx.Module):
    """Gated attention along axis 1; axis 0 are independent lines."""
    qkv: jax.Array
    gate: jax.Array
    out: jax.Array
    scale: jax.Array
    heads: int = eqx.field(static=True)
    lines_at_once: int = eqx.field(static=True)

    def __init__(self, cfg, key):
        c = cfg.channels
        k1, k2, k3 = jax.random.split(key, 3)
        self.qkv = jax.random.normal(k1, (c, 3 * c), jnp.bfloat16) * c ** -0.5
        self.gate = jax.random.normal(k2, (c, c), jnp.bfloat16) * c ** -0.5
        self.out = jax.random.normal(k3, (c, c), jnp.bfloat16) * c ** -0.5
        self.scale = jnp.ones((c,), jnp.bfloat16)
        self.heads, self.lines_at_once = cfg.heads, cfg.lines_at_once

    def attend(self, z):
        b, n, c = z.shape
        h = z * lax.rsqrt(jnp.mean(z.astype(jnp.float32) ** 2, -1, keepdims=True) + 1e-5).astype(z.dtype) * self.scale
        q, k, v = jnp.split((h @ self.qkv).reshape(b, n, self.heads, -1), 3, axis=-1)
        weights = jax.nn.softmax(jnp.einsum("bihd,bjhd->bhij", q, k) * (c // self.heads) ** -0.5, axis=-1)
        mixed = jnp.einsum("bhij,bjhd->bihd", weights, v).reshape(b, n, c)
        return z + (mixed * jax.nn.sigmoid(h @ self.gate)) @ self.out

    def __call__(self, z):
        lines, n, c = z.shape
        batches = z.reshape(lines // self.lines_at_once, self.lines_at_once, n, c)
        return lax.map(self.attend, batches).reshape(lines, n, c)


class PairBlock(eqx.Module):
    rows: LineAttention
    columns: LineAttention

    def __init__(self, cfg, key):
        k1, k2 = jax.random.split(key)
        self.rows, self.columns = LineAttention(cfg, k1), LineAttention(cfg, k2)


class Trunk(eqx.Module):
    blocks: list
    head: jax.Array

    def __init__(self, cfg, key):
        *keys, last = jax.random.split(key, cfg.blocks + 1)
        self.blocks = [PairBlock(cfg, k) for k in keys]
        self.head = jax.random.normal(last, (cfg.channels, cfg.bins), jnp.bfloat16)


def switch_axis(z, *, joined, cut):
    """The local block of `z`, split along `joined`, becomes the local block split along `cut`."""
    whole = lax.all_gather(z, "res", axis=joined, tiled=True)  # FAULT
    width = z.shape[cut] // lax.axis_size("res")
    return lax.dynamic_slice_in_dim(whole, lax.axis_index("res") * width, width, axis=cut)  # FAULT


def trunk_forward(trunk, z):
    for block in trunk.blocks:
        z = block.rows(z)
        z = switch_axis(z, joined=0, cut=1)
        z = block.columns(z.swapaxes(0, 1)).swapaxes(0, 1)
        z = switch_axis(z, joined=1, cut=0)
    logits = z @ trunk.head
    return z, jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1).astype(jnp.bfloat16)


def make_faulty(devices):
    cfg = TrunkConfig()
    mesh = Mesh(np.asarray(devices).reshape(16), ("res",))
    small = NamedSharding(mesh, P())
    by_row = NamedSharding(mesh, P("res"))
    trunk = jax.eval_shape(lambda k: Trunk(cfg, k), jax.random.key(0))
    trunk = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=small), trunk)
    pair = jax.ShapeDtypeStruct((cfg.residues, cfg.residues, cfg.channels), jnp.bfloat16, sharding=by_row)
    forward = jax.shard_map(trunk_forward, mesh=mesh, in_specs=(P(), P("res")), out_specs=(P("res"), P("res")))
    return jax.jit(forward, donate_argnums=(1,)), (trunk, pair)
