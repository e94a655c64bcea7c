# mypy: ignore-errors
"""Inference and fine-tuning, for a v5e."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx

TARGETS = ("tpu-v5e:2x2",)


class Mixer(nn.Module):
    tokens: int = 512
    channels: int = 2048

    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm()(x).swapaxes(1, 2)
        y = nn.Dense(x.shape[1])(nn.gelu(nn.Dense(self.tokens)(y)))
        x = x + y.swapaxes(1, 2)
        y = nn.LayerNorm()(x)
        return x + nn.Dense(x.shape[2])(nn.gelu(nn.Dense(self.channels)(y)))


class MlpMixer(nn.Module):
    depth: int = 8

    def setup(self):
        self.stem = nn.Conv(512, (16, 16), strides=(16, 16))
        self.blocks = [Mixer() for _ in range(self.depth)]
        self.head = nn.Dense(1000)

    def __call__(self, x):
        x = self.stem(x)
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def make_mixer(batch=64):
    """Training with labels that are smoothed and a decay of weights."""
    model = MlpMixer()
    optimizer = optax.lion(1e-4)

    @jax.jit
    def train_step(params, state, images, labels):
        def loss_fn(params):
            logits = model.apply(params, images)
            targets = optax.smooth_labels(jax.nn.one_hot(labels, 1000), 0.1)
            return optax.softmax_cross_entropy(logits, targets).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    images = jax.ShapeDtypeStruct((batch, 224, 224, 3), jnp.float32)
    params = jax.eval_shape(model.init, jax.random.key(0), images)
    state = jax.eval_shape(optimizer.init, params)
    return train_step, (params, state, images, jax.ShapeDtypeStruct((batch,), jnp.int32))


class Block(nnx.Module):
    def __init__(self, width, rngs):
        self.norm1 = nnx.RMSNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            num_heads=8, in_features=width, decode=False, rngs=rngs
        )
        self.norm2 = nnx.RMSNorm(width, rngs=rngs)
        self.up = nnx.LoRALinear(width, 4 * width, lora_rank=16, rngs=rngs)
        self.down = nnx.LoRALinear(4 * width, width, lora_rank=16, rngs=rngs)

    def __call__(self, x, mask):
        x = x + self.attention(self.norm1(x), mask=mask)
        return x + self.down(nnx.silu(self.up(self.norm2(x))))


class Tuned(nnx.Module):
    def __init__(self, width, layers, vocab, rngs):
        self.embed = nnx.Embed(vocab, width, rngs=rngs)
        self.blocks = nnx.List([Block(width, rngs) for _ in range(layers)])

    def __call__(self, tokens):
        mask = nnx.make_causal_mask(tokens)
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, mask)
        return self.embed.attend(x)


def make_lora(batch=8, length=512, width=768, layers=6, vocab=32000):
    """Only the low-rank weights are trained."""
    optimizer = optax.adam(1e-4)
    model = nnx.eval_shape(lambda: Tuned(width, layers, vocab, nnx.Rngs(0)))
    graph, lora, rest = nnx.split(model, nnx.LoRAParam, ...)

    @jax.jit
    def train_step(lora, state, rest, tokens):
        def loss_fn(lora):
            logits = nnx.merge(graph, lora, rest)(tokens[:, :-1])
            labels = tokens[:, 1:]
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_fn)(lora)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(lora, updates), state, loss

    tokens = jax.ShapeDtypeStruct((batch, length + 1), jnp.int32)
    return train_step, (lora, jax.eval_shape(optimizer.init, lora), rest, tokens)


def make_prefill(batch=8, length=2048, width=1024, layers=12, vocab=32000):
    """Fills a cache from prompts, and scores their tokens."""

    def prefill(params, cache, tokens):
        x = params["embed"][tokens]

        def body(x, inputs):
            w, k_cache, v_cache = inputs
            q, k, v = (x @ w[name] for name in "qkv")
            split = lambda t: t.reshape(*t.shape[:-1], 8, -1)
            y = jax.nn.dot_product_attention(split(q), split(k), split(v), is_causal=True)
            x = x + y.reshape(x.shape) @ w["o"]
            x = x + jax.nn.gelu(x @ w["up"]) @ w["down"]
            k_cache = jax.lax.dynamic_update_slice(k_cache, k, (0, 0, 0))
            v_cache = jax.lax.dynamic_update_slice(v_cache, v, (0, 0, 0))
            return x, (k_cache, v_cache)

        x, cache = jax.lax.scan(body, x, (params["layers"], *cache))
        log = jax.nn.log_softmax((x @ params["embed"].T).astype(jnp.float32))
        scores = jnp.take_along_axis(log[:, :-1], tokens[:, 1:, None], -1)
        return cache, scores.sum((1, 2))

    s = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    weights = {name: s(layers, width, width) for name in "qkvo"}
    weights |= {"up": s(layers, width, 4 * width), "down": s(layers, 4 * width, width)}
    cache = s(layers, batch, 2 * length, width)
    tokens = jax.ShapeDtypeStruct((batch, length), jnp.int32)
    return jax.jit(prefill), ({"embed": s(vocab, width), "layers": weights}, (cache, cache), tokens)
