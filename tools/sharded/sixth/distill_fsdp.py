# mypy: ignore-errors
"""Clean. Distillation with FSDP for teacher and student: each layer's weights are gathered within the rematerialized body and gathered again for the backward pass."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class Net:
    layers: int
    d: int
    ff: int
    heads: int


TEACHER = Net(layers=12, d=2048, ff=8192, heads=16)
STUDENT = Net(layers=6, d=1024, ff=4096, heads=8)
VOCAB, BATCH, SEQ, TEMPERATURE = 16_384, 16, 512, 2.0


def net_shapes(n):
    return {
        "embed": (VOCAB, n.d),
        "stack": {"qkv": (n.layers, n.d, 3 * n.d), "o": (n.layers, n.d, n.d), "up": (n.layers, n.d, n.ff),
                  "down": (n.layers, n.ff, n.d), "scale": (n.layers, n.d)},
    }


def fsdp_spec(shape):
    if len(shape) == 3:
        return P(None, "fsdp", None)
    return P("fsdp", None) if shape[0] == VOCAB else P()


def norm(x):
    v = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return x * jax.lax.rsqrt(v + 1e-6).astype(x.dtype)


def apply(mesh, net, params, tokens):
    def whole(w):
        return jax.lax.with_sharding_constraint(w.astype(jnp.bfloat16), NamedSharding(mesh, P()))

    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.nothing_saveable)
    def body(x, w):
        w = jax.tree.map(whole, w)
        b, s, d = x.shape
        h = norm(x) * w["scale"]
        q, k, v = jnp.split((h @ w["qkv"]).reshape(b, s, net.heads, -1), 3, -1)
        x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, s, d) @ w["o"]
        return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"], None

    x = params["embed"].astype(jnp.bfloat16)[tokens]
    x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("fsdp")))
    x, _ = jax.lax.scan(body, x, params["stack"])
    logits = jnp.einsum("bsd,vd->bsv", norm(x), params["embed"].astype(x.dtype))
    return jax.lax.with_sharding_constraint(logits.astype(jnp.float32), NamedSharding(mesh, P("fsdp")))


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))

    def tree(net, dtype):
        return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, dtype, sharding=NamedSharding(mesh, fsdp_spec(s))),
                            net_shapes(net), is_leaf=lambda s: isinstance(s, tuple))

    tx = optax.adamw(2e-4)
    student, teacher = tree(STUDENT, jnp.float32), tree(TEACHER, jnp.bfloat16)
    opt = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(
        mesh, fsdp_spec(a.shape) if a.ndim else P())), jax.eval_shape(tx.init, student))

    def loss_fn(student, teacher, tokens):
        soft = jax.nn.softmax(jax.lax.stop_gradient(apply(mesh, TEACHER, teacher, tokens)) / TEMPERATURE)
        logp = jax.nn.log_softmax(apply(mesh, STUDENT, student, tokens) / TEMPERATURE)
        return -TEMPERATURE**2 * jnp.mean(jnp.sum(soft * logp, -1))

    def step(student, opt, teacher, tokens):
        loss, g = jax.value_and_grad(loss_fn)(student, teacher, tokens)
        g = jax.tree.map(lambda a, s: jax.lax.with_sharding_constraint(a, s.sharding), g, student_structs)
        updates, opt = tx.update(g, opt, student)
        return optax.apply_updates(student, updates), opt, loss

    student_structs = student
    tokens = jax.ShapeDtypeStruct((BATCH, SEQ), jnp.int32, sharding=NamedSharding(mesh, P("fsdp")))
    out = (jax.tree.map(lambda a: a.sharding, student), jax.tree.map(lambda a: a.sharding, opt),
           NamedSharding(mesh, P()))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=out), (student, opt, teacher, tokens)
