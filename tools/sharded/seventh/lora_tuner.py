# mypy: ignore-errors
"""Clean. LoRA: the frozen base is split over both mesh axes, the small adapters with their Adam state are replicated."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

LAYERS, D, FF, HEADS, RANK, VOCAB = 12, 2048, 8192, 16, 8, 32768
BATCH, SEQ = 16, 512

RULES = (("embed", "fsdp"), ("hidden", "tp"), ("vocab", "tp"), ("layer", None), ("rank", None))
BASE = {
    "qkv": ((LAYERS, D, 3 * D), ("layer", "embed", "hidden")),
    "out": ((LAYERS, D, D), ("layer", "hidden", "embed")),
    "up": ((LAYERS, D, FF), ("layer", "embed", "hidden")),
    "down": ((LAYERS, FF, D), ("layer", "hidden", "embed")),
}
TARGETS = {"qkv": (D, 3 * D), "up": (D, FF)}


def lora(x, w, adapter):
    w = w.astype(jnp.bfloat16)
    low = (x @ adapter["a"].astype(x.dtype)) @ adapter["b"].astype(x.dtype)
    return x @ w + (16.0 / RANK) * low


def block(x, base, adapters, pin):
    b, s, d = x.shape
    h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
    qkv = pin(lora(h, base["qkv"], adapters["qkv"]), "fsdp", None, "tp")
    q, k, v = jnp.split(qkv.reshape(b, s, HEADS, -1), 3, axis=-1)
    x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, s, d) @ base["out"]
    h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
    h = pin(jax.nn.silu(lora(h, base["up"], adapters["up"])), "fsdp", None, "tp")
    return pin(x + h @ base["down"], "fsdp", None, None)


def loss_fn(adapters, base, table, tokens, pin):
    x = pin(table[tokens[:, :-1]], "fsdp", None, None)

    @jax.checkpoint
    def body(x, layer):
        return block(x, *layer, pin), None

    x, _ = jax.lax.scan(body, x, (base, adapters))
    logits = pin((x @ table.T).astype(jnp.float32), "fsdp", None, "tp")
    label = jax.nn.one_hot(tokens[:, 1:], VOCAB)
    return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.sum(label * logits, -1))


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("fsdp", "tp"))
    rep = NamedSharding(mesh, P())

    def pin(x, *spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    def frozen(shape, axes):
        sharding = nn.logical_to_mesh_sharding(P(*axes), mesh, RULES)
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    base = {k: frozen(*v) for k, v in BASE.items()}
    table = frozen((VOCAB, D), ("vocab", "embed"))
    small = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32, sharding=rep)
    adapters = {k: {"a": small(LAYERS, i, RANK), "b": small(LAYERS, RANK, o)} for k, (i, o) in TARGETS.items()}
    tx = optax.adam(2e-4)
    opt = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=rep), jax.eval_shape(tx.init, adapters))
    tokens = jax.ShapeDtypeStruct((BATCH, SEQ + 1), jnp.int32, sharding=NamedSharding(mesh, P("fsdp")))

    def step(adapters, opt, base, table, tokens):
        loss, g = jax.value_and_grad(loss_fn)(adapters, base, table, tokens, pin)
        updates, opt = tx.update(g, opt)
        return optax.apply_updates(adapters, updates), opt, loss

    return jax.jit(step, donate_argnums=(0, 1), out_shardings=rep), (adapters, opt, base, table, tokens)
