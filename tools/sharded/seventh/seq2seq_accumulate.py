# mypy: ignore-errors
"""Fault: optimizer. The spec lookup for the optimizer state knows the Adam moments but not the gradient accumulator of
MultiSteps, which is therefore replicated on all devices next to parameters that are split."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax.tree_util import keystr, tree_map_with_path

TARGET = "cpu"

VOCAB, DIM, FF, HEADS, SRC, TGT, BATCH = 8192, 1024, 4096, 8, 64, 64, 8


class Attention(eqx.Module):
    q: jax.Array
    kv: jax.Array
    o: jax.Array

    def __init__(self, key):
        a, b, c = jax.random.split(key, 3)
        self.q = jax.random.normal(a, (DIM, DIM)) * 0.02
        self.kv = jax.random.normal(b, (DIM, 2 * DIM)) * 0.02
        self.o = jax.random.normal(c, (DIM, DIM)) * 0.02

    def __call__(self, x, memory, causal):
        b, t, _ = x.shape
        q = (x @ self.q).reshape(b, t, HEADS, -1)
        k, v = jnp.split((memory @ self.kv).reshape(b, memory.shape[1], 2 * HEADS, -1), 2, axis=2)
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal).reshape(b, t, DIM) @ self.o


class FeedForward(eqx.Module):
    up: jax.Array
    down: jax.Array

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.up = jax.random.normal(a, (DIM, FF)) * 0.02
        self.down = jax.random.normal(b, (FF, DIM)) * 0.02

    def __call__(self, x):
        return jax.nn.relu(x @ self.up) @ self.down


class Translator(eqx.Module):
    embed: jax.Array
    enc_attn: Attention
    enc_ff: FeedForward
    dec_attn: Attention
    dec_cross: Attention
    dec_ff: FeedForward

    def __init__(self, key):
        k = jax.random.split(key, 6)
        self.embed = jax.random.normal(k[0], (VOCAB, DIM)) * 0.02
        self.enc_attn, self.dec_attn, self.dec_cross = Attention(k[1]), Attention(k[2]), Attention(k[3])
        self.enc_ff, self.dec_ff = FeedForward(k[4]), FeedForward(k[5])

    def __call__(self, src, tgt):
        m = self.embed[src]
        m = m + self.enc_attn(m, m, False)
        m = m + self.enc_ff(m)
        y = self.embed[tgt]
        y = y + self.dec_attn(y, y, True)
        y = y + self.dec_cross(y, m, False)
        y = y + self.dec_ff(y)
        return y @ self.embed.T


def param_spec(path, leaf):
    return P("fsdp", None) if leaf.ndim == 2 else P()


def opt_spec(path, leaf, follow):
    return param_spec(path, leaf) if any(name in keystr(path) for name in follow) else P()


def loss_fn(model, batch):
    logits = model(batch["src"], batch["tgt"][:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["tgt"][:, 1:]).mean()


def run(devices, follow):
    mesh = Mesh(np.array(devices), ("fsdp",))
    tx = optax.MultiSteps(optax.adamw(1e-4), every_k_schedule=8)
    attach = lambda s, spec: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=NamedSharding(mesh, spec))
    model = jax.eval_shape(Translator, jax.random.key(0))
    opt_state = jax.eval_shape(tx.init, model)
    model = tree_map_with_path(lambda p, s: attach(s, param_spec(p, s)), model)
    opt_state = tree_map_with_path(lambda p, s: attach(s, opt_spec(p, s, follow)), opt_state)
    tokens = lambda n: attach(jax.ShapeDtypeStruct((BATCH, n), jnp.int32), P("fsdp"))
    batch = {"src": tokens(SRC), "tgt": tokens(TGT + 1)}

    def micro_step(model, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(model, batch)
        updates, opt_state = tx.update(grads, opt_state, model)
        return optax.apply_updates(model, updates), opt_state, loss

    out = jax.tree.map(lambda s: s.sharding, (model, opt_state)) + (NamedSharding(mesh, P()),)
    return jax.jit(micro_step, donate_argnums=(0, 1), out_shardings=out), (model, opt_state, batch)


def make_faulty(devices):
    return run(devices, follow=(".mu", ".nu"))  # FAULT


def make_fixed(devices):
    return run(devices, follow=(".mu", ".nu", ".acc_grads"))
