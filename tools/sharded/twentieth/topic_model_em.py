# mypy: ignore-errors
"""Clean. Documents are divided over the devices, the table of topics (one MiB) is whole on each, its new value
is a sum over all documents. The scan over blocks of documents runs inside every device's own share.

Probabilistic topic model fitted by expectation maximisation on a dense table of word counts in one byte each.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclass(frozen=True)
class Corpus:
    documents: int = 65_536
    words: int = 4_096
    topics: int = 64
    block: int = 512
    rounds: int = 5


def expected_counts(counts, mixture, topics, rounds):
    """Variational E-step on a block of documents; returns the new mixtures and the topics' word counts."""

    def refine(mixture, _):
        mass = mixture @ topics + 1e-12
        mixture = mixture * ((counts / mass) @ topics.T) + 0.1
        return mixture / mixture.sum(axis=1, keepdims=True), None

    mixture, _ = jax.lax.scan(refine, mixture, length=rounds)
    mass = mixture @ topics + 1e-12
    used = topics * (mixture.T @ (counts / mass))
    likelihood = jnp.sum(counts * jnp.log(mass))
    return mixture, used, likelihood


def local_round(cfg, counts, mixture, topics):
    """One round on the documents of this device."""
    blocks = counts.shape[0] // cfg.block

    def one(totals, piece):
        raw, mix = piece
        mix, used, likelihood = expected_counts(raw.astype(jnp.float32), mix, topics, cfg.rounds)
        return (totals[0] + used, totals[1] + likelihood), mix

    split = counts.reshape(blocks, cfg.block, -1), mixture.reshape(blocks, cfg.block, -1)
    start = jnp.zeros_like(topics), jnp.zeros(())
    (used, likelihood), mixture = jax.lax.scan(one, start, split)
    used, likelihood = jax.lax.psum((used, likelihood), "documents")
    return mixture.reshape(counts.shape[0], -1), used, likelihood


def build(cfg, mesh):
    mine, whole = P("documents"), P()
    sweep = jax.shard_map(
        lambda *arrays: local_round(cfg, *arrays),
        mesh=mesh,
        in_specs=(mine, mine, whole),
        out_specs=(mine, whole, whole),
        check_vma=False,
    )

    def em_round(mixture, topics, counts):
        mixture, used, likelihood = sweep(counts, mixture, topics)
        used = used + 0.01
        topics = used / used.sum(axis=1, keepdims=True)
        perplexity = jnp.exp(-likelihood / jnp.maximum(counts.sum(dtype=jnp.float32), 1.0))
        return mixture, topics, perplexity

    return em_round


def make_clean(devices):
    cfg = Corpus()
    mesh = Mesh(np.array(devices), ("documents",))
    rows, whole = NamedSharding(mesh, P("documents")), NamedSharding(mesh, P())
    counts = jax.ShapeDtypeStruct((cfg.documents, cfg.words), jnp.uint8, sharding=rows)
    mixture = jax.ShapeDtypeStruct((cfg.documents, cfg.topics), jnp.float32, sharding=rows)
    topics = jax.ShapeDtypeStruct((cfg.topics, cfg.words), jnp.float32, sharding=whole)
    run = jax.jit(build(cfg, mesh), donate_argnums=(0, 1), out_shardings=(rows, whole, whole))
    return run, (mixture, topics, counts)
