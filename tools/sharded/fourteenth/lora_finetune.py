# mypy: ignore-errors
"""Clean. LoRA fine-tuning: the frozen bfloat16 base is divided over both axes, the small adapters (with their moments) are
whole on every chip."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

VOCAB, DIM, FFN, HEADS, LAYERS, RANK = 16384, 1024, 4096, 8, 12, 8
BATCH, LENGTH = 8, 512


class LoraLinear(eqx.Module):
    base: jax.Array
    a: jax.Array
    b: jax.Array

    def __init__(self, din, dout, key):
        self.base = jnp.zeros((LAYERS, din, dout), jnp.bfloat16)
        self.a = jax.random.normal(key, (LAYERS, din, RANK)) * din**-0.5
        self.b = jnp.zeros((LAYERS, RANK, dout))

    def __call__(self, x):
        low = (x @ self.a.astype(x.dtype)) @ self.b.astype(x.dtype)
        return x @ jax.lax.stop_gradient(self.base) + 2.0 * low


class Layers(eqx.Module):
    q: LoraLinear
    k: LoraLinear
    v: LoraLinear
    o: LoraLinear
    up: LoraLinear
    down: LoraLinear

    def __init__(self, key):
        ks = jax.random.split(key, 6)
        self.q, self.k, self.v, self.o = (LoraLinear(DIM, DIM, k) for k in ks[:4])
        self.up, self.down = LoraLinear(DIM, FFN, ks[4]), LoraLinear(FFN, DIM, ks[5])


class Model(eqx.Module):
    embed: jax.Array
    layers: Layers

    def __init__(self, key):
        self.embed = jnp.zeros((VOCAB, DIM), jnp.bfloat16)
        self.layers = Layers(key)

    def __call__(self, tokens, constrain):
        def run(x, layer):
            h = rms(x)
            heads = lambda y: y.reshape(*y.shape[:2], HEADS, -1)
            a = jax.nn.dot_product_attention(heads(layer.q(h)), heads(layer.k(h)), heads(layer.v(h)), is_causal=True)
            x = x + layer.o(a.reshape(h.shape))
            return constrain(x + layer.down(jax.nn.silu(layer.up(rms(x)))), P("data", "model")), None

        x = constrain(self.embed[tokens], P("data", "model"))
        x, _ = jax.lax.scan(jax.checkpoint(run), x, self.layers)
        return constrain(rms(x) @ self.embed.T, P("data", None, "model"))


def rms(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6).astype(x.dtype)


def spec_of(path, leaf):
    name = jax.tree_util.keystr(path)
    if "embed" in name:
        return P("model", "data")
    if "base" in name:
        return P(None, "model", "data") if (".o." in name or ".down." in name) else P(None, "data", "model")
    return P()


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))
    constrain = lambda x, spec: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))
    place = lambda path, s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=NamedSharding(mesh, spec_of(path, s)))
    model = jax.tree_util.tree_map_with_path(place, eqx.filter_eval_shape(Model, jax.random.key(0)))
    adapters, frozen = eqx.partition(model, lambda s: s.dtype == jnp.float32)
    tx = optax.adamw(2e-4)
    opt = jax.tree_util.tree_map_with_path(place, jax.eval_shape(tx.init, adapters))

    def step(adapters, opt, frozen, tokens):
        def loss_fn(adapters):
            logits = eqx.combine(adapters, frozen)(tokens[:, :-1], constrain).astype(jnp.float32)
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        loss, grads = jax.value_and_grad(loss_fn)(adapters)
        updates, opt = tx.update(grads, opt, adapters)
        return eqx.apply_updates(adapters, updates), opt, loss

    everywhere = NamedSharding(mesh, P())
    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH + 1), jnp.int32, sharding=NamedSharding(mesh, P("data")))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=everywhere), (adapters, opt, frozen, tokens)
