# mypy: ignore-errors
"""Language models in plain JAX, for a v5e."""

import jax
import jax.numpy as jnp
import optax

TARGETS = ("tpu-v5e:2x2",)


def rms_norm(x, scale):
    variance = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * jax.lax.rsqrt(variance + 1e-6)).astype(x.dtype) * scale


def rotary(x):
    _, length, _, size = x.shape
    angles = jnp.arange(length)[:, None] / 10000 ** (jnp.arange(size // 2) / (size // 2))
    sin, cos = jnp.sin(angles)[None, :, None], jnp.cos(angles)[None, :, None]
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1).astype(x.dtype)


def llama_block(weights, x, heads):
    batch, length, width = x.shape
    h = rms_norm(x, weights["norm1"])
    q, k, v = jnp.split(h @ weights["qkv"], 3, axis=-1)
    q, k, v = (t.reshape(batch, length, heads, width // heads) for t in (q, k, v))
    q, k = rotary(q), rotary(k)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * (width // heads) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    attended = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(x.dtype), v)
    x = x + attended.reshape(batch, length, width) @ weights["out"]
    h = rms_norm(x, weights["norm2"])
    return x + (jax.nn.silu(h @ weights["gate"]) * (h @ weights["up"])) @ weights["down"]


def llama_params(key, layers, width, vocab):
    def one(key):
        k = jax.random.split(key, 5)
        shapes = {"qkv": (width, 3 * width), "out": (width, width), "gate": (width, 3 * width)}
        shapes |= {"up": (width, 3 * width), "down": (3 * width, width)}
        w = {n: jax.random.normal(i, s) * 0.02 for i, (n, s) in zip(k, shapes.items(), strict=True)}
        return w | {"norm1": jnp.ones(width), "norm2": jnp.ones(width)}

    blocks = jax.vmap(one)(jax.random.split(key, layers))
    return {"embed": jax.random.normal(key, (vocab, width)) * 0.02, "blocks": blocks,
            "norm": jnp.ones(width)}  # fmt: skip


def make_llama(layers=8, width=768, heads=12, vocab=32000, batch=4, length=1024):
    """A scanned decoder with Adam in float32 and activations in bfloat16."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-4))

    def loss_fn(params, tokens):
        p = jax.tree.map(lambda a: a.astype(jnp.bfloat16), params)
        x = p["embed"][tokens[:, :-1]]
        x, _ = jax.lax.scan(lambda x, w: (llama_block(w, x, heads), None), x, p["blocks"])
        logits = (rms_norm(x, p["norm"]) @ p["embed"].T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def train_step(params, opt_state, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    params = jax.eval_shape(lambda k: llama_params(k, layers, width, vocab), jax.random.key(0))
    opt_state = jax.eval_shape(optimizer.init, params)
    tokens = jax.ShapeDtypeStruct((batch, length + 1), jnp.int32)
    return jax.jit(train_step), (params, opt_state, tokens)


def make_decode(layers=8, width=1024, heads=8, vocab=32000, batch=16, context=2048, steps=32):
    """Greedy decoding of some tokens with a cache of keys and values."""
    size = width // heads

    def layer(x, weights, k_cache, v_cache, position):
        h = rms_norm(x, weights["norm1"])
        q, k, v = jnp.split(h @ weights["qkv"], 3, axis=-1)
        q, k, v = (t.reshape(-1, 1, heads, size) for t in (q, k, v))
        k_cache = jax.lax.dynamic_update_slice(k_cache, k, (0, position, 0, 0))
        v_cache = jax.lax.dynamic_update_slice(v_cache, v, (0, position, 0, 0))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k_cache) * size**-0.5
        scores = jnp.where(jnp.arange(context) <= position, scores, -1e9)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v_cache).reshape(
            -1, 1, width
        ) @ weights["out"]
        h = rms_norm(x, weights["norm2"])
        x = x + (jax.nn.silu(h @ weights["gate"]) * (h @ weights["up"])) @ weights["down"]
        return x, k_cache, v_cache

    def decode(params, cache, token, position):
        def one(state, _):
            cache, token, position = state
            x = params["embed"][token][:, None]

            def body(x, inputs):
                weights, k, v = inputs
                x, k, v = layer(x, weights, k, v, position)
                return x, (k, v)

            x, cache = jax.lax.scan(body, x, (params["blocks"], *cache))
            token = jnp.argmax(rms_norm(x, params["norm"])[:, 0] @ params["embed"].T, -1)
            return (cache, token.astype(jnp.int32), position + 1), token

        (cache, _, _), tokens = jax.lax.scan(one, (cache, token, position), length=steps)
        return cache, tokens

    params = jax.eval_shape(lambda k: llama_params(k, layers, width, vocab), jax.random.key(0))
    params = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, jnp.bfloat16), params)
    one = jax.ShapeDtypeStruct((layers, batch, context, heads, size), jnp.bfloat16)
    token = jax.ShapeDtypeStruct((batch,), jnp.int32)
    return jax.jit(decode), (params, (one, one), token, jax.ShapeDtypeStruct((), jnp.int32))


def make_mixture(layers=3, width=512, experts=8, batch=8, length=512, capacity=1024):
    """Unrolled layers of a mixture of experts, top-1 routed with a capacity."""

    def moe(weights, x):
        flat = x.reshape(-1, width)
        probabilities = jax.nn.softmax(flat @ weights["router"])
        expert = jnp.argmax(probabilities, -1)
        gate = jnp.take_along_axis(probabilities, expert[:, None], 1)
        chosen = jax.nn.one_hot(expert, experts)
        position = (jnp.cumsum(chosen, 0) - 1) * chosen
        dispatch = chosen[..., None] * jax.nn.one_hot(position.sum(-1).astype(int), capacity)[:, None]
        inputs = jnp.einsum("tec,td->ecd", dispatch, flat)
        hidden = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", inputs, weights["up"]))
        outputs = jnp.einsum("ecf,efd->ecd", hidden, weights["down"])
        return x + (gate * jnp.einsum("tec,ecd->td", dispatch, outputs)).reshape(x.shape)

    def train_step(params, x, target):
        def loss_fn(params):
            h = x
            for weights in params:
                h = moe(weights, h)
            return jnp.mean((h - target) ** 2)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss

    s = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    one = {"router": s(width, experts), "up": s(experts, width, 4 * width),
           "down": s(experts, 4 * width, width)}  # fmt: skip
    x = s(batch, length, width)
    return jax.jit(train_step, donate_argnums=0), ([one] * layers, x, x)
