# mypy: ignore-errors
"""Clean. Speculative decoding: a tiny draft model is replicated, the target model and its donated cache are split over heads."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

GAMMA = 4
BIG = dict(layers=6, d=2048, heads=16, ff=8192)
VOCAB, CONTEXT, BATCH, DRAFT_D = 32768, 2048, 16, 256


def target_weights(sds):
    l, d, h, f = BIG["layers"], BIG["d"], BIG["heads"], BIG["ff"]
    return {
        "embed": sds((VOCAB, d), "tp", None),
        "q": sds((l, d, h, d // h), None, None, "tp", None),
        "k": sds((l, d, h, d // h), None, None, "tp", None),
        "v": sds((l, d, h, d // h), None, None, "tp", None),
        "o": sds((l, h, d // h, d), None, "tp", None, None),
        "up": sds((l, d, f), None, None, "tp"),
        "down": sds((l, f, d), None, "tp", None),
    }


def propose(draft, token):
    """A bigram-like draft: GAMMA greedy tokens."""

    def one(token, _):
        h = jax.nn.relu(draft["embed"][token] @ draft["mix"])
        token = jnp.argmax(h @ draft["head"], axis=-1).astype(jnp.int32)
        return token, token

    _, tokens = jax.lax.scan(one, token, None, length=GAMMA)
    return jnp.swapaxes(tokens, 0, 1)


def verify(w, cache, tokens, pos):
    x = w["embed"][tokens]
    steps = tokens.shape[1]
    seen = jnp.arange(CONTEXT)[None, :] <= (pos + jnp.arange(steps))[:, None]
    updated = []
    for i, (ck, cv) in enumerate(cache):
        q, k, v = (jnp.einsum("bsd,dhk->bhsk", x, w[n][i]) for n in "qkv")
        ck = jax.lax.dynamic_update_slice_in_dim(ck, k, pos, axis=2)
        cv = jax.lax.dynamic_update_slice_in_dim(cv, v, pos, axis=2)
        s = jnp.einsum("bhsk,bhtk->bhst", q, ck, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
        a = jax.nn.softmax(jnp.where(seen, s, -1e30), -1).astype(x.dtype)
        x = x + jnp.einsum("bhsk,hkd->bsd", jnp.einsum("bhst,bhtk->bhsk", a, cv), w["o"][i])
        x = x + jax.nn.gelu(x @ w["up"][i]) @ w["down"][i]
        updated.append((ck, cv))
    return jnp.argmax(jnp.einsum("bsd,vd->bsv", x, w["embed"]), -1).astype(jnp.int32), updated


def speculative_step(w, draft, cache, token, pos):
    guesses = propose(draft, token)
    inputs = jnp.concatenate([token[:, None], guesses], axis=1)
    chosen, cache = verify(w, cache, inputs, pos)
    agree = jnp.cumprod(chosen[:, :-1] == guesses, axis=1)
    accepted = jnp.min(agree.sum(1))
    token = jax.lax.dynamic_index_in_dim(chosen, accepted, axis=1, keepdims=False)
    return cache, token, pos + accepted + 1, chosen


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("tp",))

    def sds(shape, *spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    draft = {"embed": sds((VOCAB, DRAFT_D)), "mix": sds((DRAFT_D, DRAFT_D)), "head": sds((DRAFT_D, VOCAB))}
    kv = sds((BATCH, BIG["heads"], CONTEXT, BIG["d"] // BIG["heads"]), None, "tp", None, None)
    cache = [(kv, kv)] * BIG["layers"]
    token, pos = sds((BATCH,), dtype=jnp.int32), sds((), dtype=jnp.int32)
    rep = NamedSharding(mesh, P())
    placed = jax.tree.map(lambda leaf: leaf.sharding, cache)
    fn = jax.jit(speculative_step, donate_argnames=("cache",), out_shardings=(placed, rep, rep, rep))
    return fn, (target_weights(sds), draft, cache, token, pos)
