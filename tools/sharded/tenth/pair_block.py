# mypy: ignore-errors
"""Fault: replicated. The pair representation is pinned to the batch axis only, so both devices of a
"row" group hold all its rows, while the MSA representation beside it is split over them."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclass(frozen=True)
class FoldConfig:
    batch: int = 2
    seqs: int = 64
    residues: int = 512
    msa_dim: int = 128
    pair_dim: int = 128
    opm_dim: int = 16
    blocks: int = 2


def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)


def outer_product_mean(p, msa):
    a = msa @ p["opm_a"]
    b = msa @ p["opm_b"]
    outer = jnp.einsum("bsic,bsjd->bijcd", a, b) / msa.shape[1]
    return jnp.einsum("bijcd,cdz->bijz", outer, p["opm_out"])


def triangle(p, pair):
    z = norm(pair)
    left = jax.nn.sigmoid(z @ p["gate_l"]) * (z @ p["left"])
    right = jax.nn.sigmoid(z @ p["gate_r"]) * (z @ p["right"])
    return norm(jnp.einsum("bikc,bjkc->bijc", left, right)) @ p["out"]


def msa_transition(p, msa):
    return jax.nn.relu(norm(msa) @ p["up"]) @ p["down"]


def make_faulty(devices):
    cfg = FoldConfig()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "row"))

    def on(*axes):
        return NamedSharding(mesh, P(*axes))

    def evoformer(params, msa, pair):
        for p in params:
            msa = msa + msa_transition(p, msa)
            msa = lax.with_sharding_constraint(msa, on("data", None, "row", None))
            pair = pair + outer_product_mean(p, msa)
            pair = lax.with_sharding_constraint(pair, on("data", None, None, None))  # FAULT
            pair = pair + triangle(p, pair)
        return msa, jnp.einsum("bijc,cn->bijn", pair, params[0]["distogram"]).argmax(-1)

    m, z, c = cfg.msa_dim, cfg.pair_dim, cfg.opm_dim
    shapes = dict(
        opm_a=(m, c), opm_b=(m, c), opm_out=(c, c, z), left=(z, z), right=(z, z),
        gate_l=(z, z), gate_r=(z, z), out=(z, z), up=(m, 4 * m), down=(4 * m, m), distogram=(z, 64),
    )
    block = {k: jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=on()) for k, s in shapes.items()}
    params = [dict(block) for _ in range(cfg.blocks)]
    msa = jax.ShapeDtypeStruct(
        (cfg.batch, cfg.seqs, cfg.residues, m), jnp.bfloat16, sharding=on("data", None, "row", None)
    )
    pair = jax.ShapeDtypeStruct(
        (cfg.batch, cfg.residues, cfg.residues, z), jnp.bfloat16, sharding=on("data", "row")
    )
    out = (on("data", None, "row", None), on("data", "row", None))
    return jax.jit(evoformer, out_shardings=out), (params, msa, pair)
