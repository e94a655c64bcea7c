# mypy: ignore-errors
"""Clean. One greedy step of a Whisper-like speech decoder in equinox: heads, hidden units and vocabulary are split over
"model", utterances over "data"; the self-attention caches are donated and updated in place.
"""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, DIM, HEADS, HEAD_DIM, HIDDEN = 8, 1024, 8, 128, 4096
VOCAB = 51_968  # 51 865, filled up to a multiple of 128
MAX_TOKENS, AUDIO_FRAMES, UTTERANCES = 448, 1500, 32


class Attention(eqx.Module):
    q: jax.Array
    k: jax.Array
    v: jax.Array
    o: jax.Array

    def __init__(self, key):
        a, b, c, d = jax.random.split(key, 4)
        make = lambda k, shape: jax.random.normal(k, shape, jnp.bfloat16) * DIM**-0.5
        self.q = make(a, (DIM, HEADS, HEAD_DIM))
        self.k = make(b, (DIM, HEADS, HEAD_DIM))
        self.v = make(c, (DIM, HEADS, HEAD_DIM))
        self.o = make(d, (HEADS, HEAD_DIM, DIM))

    def attend(self, x, keys, values, valid=None):
        q = jnp.einsum("bd,dhk->bhk", x, self.q)
        scores = jnp.einsum("bhk,bhsk->bhs", q, keys, preferred_element_type=jnp.float32) * HEAD_DIM**-0.5
        if valid is not None:
            scores = jnp.where(valid, scores, -1e9)
        mixed = jnp.einsum("bhs,bhsk->bhk", jax.nn.softmax(scores, -1).astype(x.dtype), values)
        return jnp.einsum("bhk,hkd->bd", mixed, self.o)


class CrossAttention(eqx.Module):
    """Keys and values of the audio were made when the utterance was encoded."""

    q: jax.Array
    o: jax.Array
    attend = Attention.attend

    def __init__(self, key):
        whole = Attention(key)
        self.q, self.o = whole.q, whole.o


class Block(eqx.Module):
    norms: jax.Array
    own: Attention
    audio: CrossAttention
    up: jax.Array
    down: jax.Array

    def __init__(self, key):
        a, b, c, d = jax.random.split(key, 4)
        self.norms = jnp.ones((3, DIM), jnp.bfloat16)
        self.own, self.audio = Attention(a), CrossAttention(b)
        self.up = jax.random.normal(c, (DIM, HIDDEN), jnp.bfloat16) * DIM**-0.5
        self.down = jax.random.normal(d, (HIDDEN, DIM), jnp.bfloat16) * HIDDEN**-0.5

    def __call__(self, x, cache, audio, position):
        h = rms(x, self.norms[0])
        keys, values = (
            jax.lax.dynamic_update_slice_in_dim(old, jnp.einsum("bd,dhk->bhk", h, w)[:, :, None], position, axis=2)
            for old, w in zip(cache, (self.own.k, self.own.v))
        )
        x = x + self.own.attend(h, keys, values, jnp.arange(MAX_TOKENS) <= position)
        x = x + self.audio.attend(rms(x, self.norms[1]), *audio)
        x = x + jax.nn.gelu(rms(x, self.norms[2]) @ self.up) @ self.down
        return x, (keys, values)


class Decoder(eqx.Module):
    embedding: jax.Array
    positions: jax.Array
    blocks: list

    def __init__(self, key):
        keys = jax.random.split(key, LAYERS + 1)
        self.embedding = jax.random.normal(keys[0], (VOCAB, DIM), jnp.bfloat16) * 0.02
        self.positions = jnp.zeros((MAX_TOKENS, DIM), jnp.bfloat16)
        self.blocks = [Block(k) for k in keys[1:]]

    def __call__(self, tokens, caches, audio, position):
        x = self.embedding[tokens] + self.positions[position]
        new = []
        for block, cache, heard in zip(self.blocks, caches, audio, strict=True):
            x, cache = block(x, cache, heard, position)
            new.append(cache)
        return x @ self.embedding.T, new


def rms(x, scale):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def decoder_specs(decoder):
    """The same tree with a PartitionSpec for every array."""
    by_name = {
        "q": P(None, "model", None),
        "k": P(None, "model", None),
        "v": P(None, "model", None),
        "o": P("model", None, None),
        "up": P(None, "model"),
        "down": P("model", None),
        "embedding": P("model", None),
        "positions": P(),
        "norms": P(),
    }
    return jax.tree_util.tree_map_with_path(lambda path, _: by_name[path[-1].name], decoder)


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(2, 2), ("data", "model"))
    named = lambda *spec: NamedSharding(mesh, P(*spec))
    rows, cached = named("data"), named("data", "model", None, None)

    def decode_step(decoder, tokens, caches, audio, position):
        logits, caches = decoder(tokens, caches, audio, position)
        logits = jax.lax.with_sharding_constraint(logits, named("data", "model"))
        return jnp.argmax(logits, -1).astype(jnp.int32), caches

    decoder = eqx.filter_eval_shape(Decoder, jax.random.key(0))
    decoder = jax.tree.map(
        lambda a, spec: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=named(*spec)), decoder, decoder_specs(decoder)
    )
    per_head = lambda n: jax.ShapeDtypeStruct((UTTERANCES, HEADS, n, HEAD_DIM), jnp.bfloat16, sharding=cached)
    caches = [(per_head(MAX_TOKENS), per_head(MAX_TOKENS)) for _ in range(LAYERS)]
    audio = [(per_head(AUDIO_FRAMES), per_head(AUDIO_FRAMES)) for _ in range(LAYERS)]
    tokens = jax.ShapeDtypeStruct((UTTERANCES,), jnp.int32, sharding=rows)
    position = jax.ShapeDtypeStruct((), jnp.int32, sharding=named())
    step = jax.jit(decode_step, out_shardings=(rows, cached), donate_argnums=(1, 2))
    return step, (decoder, tokens, caches, audio, position)
