# mypy: ignore-errors
"""Fault: replicated. The projections inside the triangle update keep only the row axis of the pair representation; the
column axis, which splits the pair tensor everywhere else, is gathered for the widest arrays of the block."""
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

RES, SEQS, C_M, C_Z, C_HID, N_BLOCKS = 512, 64, 128, 128, 256, 3


def norm(x):
    mu = jnp.mean(x, -1, keepdims=True)
    return (x - mu) * jax.lax.rsqrt(jnp.mean((x - mu) ** 2, -1, keepdims=True) + 1e-5)


class Evoformer:
    def __init__(self, mesh, hidden_spec):
        self.pair = NamedSharding(mesh, P("row", "col", None))
        self.hidden = NamedSharding(mesh, hidden_spec)
        self.msa = NamedSharding(mesh, P(None, "row", None))

    @staticmethod
    def weight_shapes():
        return {
            "opm_a": (C_M, 32),
            "opm_b": (C_M, 32),
            "opm_out": (32 * 32, C_Z),
            "tri_a": (C_Z, C_HID),
            "tri_b": (C_Z, C_HID),
            "tri_gate": (C_Z, C_HID),
            "tri_out": (C_HID, C_Z),
            "trans_in": (C_Z, 2 * C_Z),
            "trans_out": (2 * C_Z, C_Z),
        }

    def outer_product_mean(self, w, msa):
        a, b = norm(msa) @ w["opm_a"], norm(msa) @ w["opm_b"]
        left = jnp.einsum("sic,cdz->sidz", a, w["opm_out"].reshape(32, 32, C_Z))
        return jnp.einsum("sidz,sjd->ijz", left, b) / msa.shape[0]

    def triangle(self, w, z):
        zn = norm(z)
        hid = lambda t: jax.lax.with_sharding_constraint(t, self.hidden)
        a = hid(jax.nn.sigmoid(zn @ w["tri_a"]))
        b = hid(jax.nn.silu(zn @ w["tri_b"]))
        gate = hid(jax.nn.sigmoid(zn @ w["tri_gate"]))
        out = hid(jnp.einsum("ikc,jkc->ijc", a, b) / math.sqrt(RES))
        return (norm(out) * gate) @ w["tri_out"]

    def block(self, carry, w):
        msa, z = carry
        z = z + self.outer_product_mean(w, msa)
        z = jax.lax.with_sharding_constraint(z, self.pair)
        z = z + self.triangle(w, z)
        z = z + jax.nn.relu(norm(z) @ w["trans_in"]) @ w["trans_out"]
        return msa, jax.lax.with_sharding_constraint(z, self.pair)

    def __call__(self, weights, msa, z):
        carry = (msa, z)
        carry, _ = jax.lax.scan(lambda c, w: (self.block(c, w), None), carry, weights)
        distogram = carry[1] + jnp.swapaxes(carry[1], 0, 1)
        return jax.lax.with_sharding_constraint(distogram, self.pair)


def model(devices, hidden_spec):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("row", "col"))
    net = Evoformer(mesh, hidden_spec)
    rep = NamedSharding(mesh, P())
    dt = jnp.bfloat16
    weights = {
        k: jax.ShapeDtypeStruct((N_BLOCKS, *shape), dt, sharding=rep) for k, shape in Evoformer.weight_shapes().items()
    }
    msa = jax.ShapeDtypeStruct((SEQS, RES, C_M), dt, sharding=net.msa)
    pair = jax.ShapeDtypeStruct((RES, RES, C_Z), dt, sharding=net.pair)
    return jax.jit(net.__call__, donate_argnums=2), (weights, msa, pair)


ROWS_ONLY = P("row", None, None)  # FAULT
ROWS_AND_COLUMNS = P("row", "col", None)


def make_faulty(devices):
    return model(devices, ROWS_ONLY)


def make_fixed(devices):
    return model(devices, ROWS_AND_COLUMNS)
