"""A small GPT in flax.linen."""

import flax.linen as nn
import jax
import jax.numpy as jnp


class Block(nn.Module):
    d: int
    heads: int
    dtype: object = jnp.float32

    @nn.compact
    def __call__(self, x):
        b, t, d = x.shape
        h = nn.LayerNorm(dtype=self.dtype)(x)
        qkv = nn.Dense(3 * self.d, use_bias=False, dtype=self.dtype, name="qkv")(h)
        q, k, v = jnp.split(qkv, 3, axis=-1)
        shape = (b, t, self.heads, d // self.heads)
        q, k, v = (a.reshape(shape) for a in (q, k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (d // self.heads) ** 0.5
        mask = jnp.tril(jnp.ones((t, t), bool))
        probs = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
        out = jnp.einsum("bhqk,bkhd->bqhd", probs, v).reshape(b, t, d)
        x = x + nn.Dense(self.d, use_bias=False, dtype=self.dtype, name="proj")(out)
        h = nn.LayerNorm(dtype=self.dtype)(x)
        h = nn.Dense(4 * self.d, dtype=self.dtype, name="up")(h)
        h = nn.gelu(h)
        return x + nn.Dense(self.d, dtype=self.dtype, name="down")(h)


class GPT(nn.Module):
    vocab: int
    d: int
    heads: int
    layers: int
    dtype: object = jnp.float32
    remat: bool = False

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(self.vocab, self.d, dtype=self.dtype, name="embed")
        x = embed(tokens)
        block = nn.remat(Block) if self.remat else Block
        for i in range(self.layers):
            x = block(self.d, self.heads, self.dtype, name=f"block_{i}")(x)
        x = nn.LayerNorm(dtype=self.dtype)(x)
        return embed.attend(x)
