# mypy: ignore-errors
"""Training steps in plain JAX: layers unrolled and scanned, several ways to write them."""

import jax
import jax.numpy as jnp

S = jax.ShapeDtypeStruct


def norm(x):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def attention(x, w):
    b, t, d = x.shape
    q, k, v = jnp.split((x @ w["qkv"]).reshape(b, t, 24, d // 8), 3, 2)
    scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / (d // 8) ** 0.5)
    return jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(b, t, d) @ w["o"]


def block(x, w):
    x = x + attention(norm(x), w)
    return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"]


def weights(d, *lead):
    shapes = {"qkv": (d, 3 * d), "o": (d, d), "up": (d, 4 * d), "down": (4 * d, d)}
    return {name: S((*lead, *shape), "float32") for name, shape in shapes.items()}


def sgd(params, grads):
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def make_unrolled(batch=16, length=256, d=512, layers=6, vocab=4096):
    def loss(params, tokens):
        x = params["embed"][tokens]
        for w in params["layers"]:
            x = block(x, w)
        logits = x @ params["embed"].T
        labels = jnp.roll(tokens, -1, 1)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).mean()

    @jax.jit
    def train_step(params, tokens):
        value, grads = jax.value_and_grad(loss)(params, tokens)
        return sgd(params, grads), value

    params = {"embed": S((vocab, d), "float32"), "layers": [weights(d) for _ in range(layers)]}
    return train_step, (params, S((batch, length), "int32"))


def make_scanned(batch=16, length=256, d=512, layers=12):
    def body(x, w):
        return block(x, w), None

    def loss(params, x):
        x, _ = jax.lax.scan(body, x, params)
        return (x**2).mean()

    def train_step(params, momentum, x):
        value, grads = jax.value_and_grad(loss)(params, x)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return sgd(params, momentum), momentum, value

    params = weights(d, layers)
    step = jax.jit(train_step, donate_argnums=())
    return step, (params, params, S((batch, length, d), "float32"))


def make_lambda_scan(batch=4096, d=512, layers=24):
    def train_step(ws, x):
        def loss(ws):
            out, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, ws)
            return (out**2).sum()

        return ws - 0.01 * jax.grad(loss)(ws)

    return train_step, (S((layers, d, d), "float32"), S((batch, d), "float32"))


def make_rnn(batch=256, length=512, d=512):
    def cell(carry, x):
        h, c, params = carry
        i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ params, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c, params), h

    @jax.jit
    def update(params, xs, targets):
        def loss(params):
            z = jnp.zeros((batch, d))
            _, hs = jax.lax.scan(cell, (z, z, params), xs)
            return jnp.mean((hs - targets) ** 2)

        return params - 1e-3 * jax.grad(loss)(params)

    xs = S((length, batch, d), "float32")
    return update, (S((2 * d, 4 * d), "float32"), xs, xs)


def make_ode(n=1 << 18, steps=600):
    def gradient(theta, y0):
        def step(y, _):
            k1 = jnp.sin(theta[0] * y) - theta[1] * y
            k2 = jnp.sin(theta[0] * (y + 0.01 * k1)) - theta[1] * (y + 0.01 * k1)
            return y + 0.01 * (k1 + k2) / 2, None

        return jnp.sum(jax.lax.scan(step, y0, length=steps)[0] ** 2)

    return jax.jit(jax.grad(gradient)), (S((2,), "float32"), S((n,), "float32"))


def make_remat_policy(batch=16, length=256, d=512, layers=6):
    policy = jax.checkpoint_policies.dots_saveable
    again = jax.checkpoint(block, policy=policy)

    @jax.jit
    def train_step(params, x):
        def loss(params):
            h = x
            for w in params:
                h = again(h, w)
            return (h**2).mean()

        return sgd(params, jax.grad(loss)(params))

    return train_step, ([weights(d) for _ in range(layers)], S((batch, length, d), "float32"))


def make_remat_scan(batch=32, length=512, d=1024, layers=24):
    def body(x, w):
        return block(x, w), None

    @jax.jit
    def train_step(params, x):
        def loss(params):
            return (jax.lax.scan(jax.checkpoint(body), x, params)[0] ** 2).mean()

        return sgd(params, jax.grad(loss)(params))

    return train_step, (weights(d, layers), S((batch, length, d), "float32"))


def make_accumulated(micro=8, batch=8, length=256, d=512, layers=4):
    def loss(params, x):
        for w in params:
            x = block(x, w)
        return (x**2).mean()

    @jax.jit
    def train_step(params, xs):
        def one(total, x):
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, x)), None

        zeros = jax.tree.map(jnp.zeros_like, params)
        return sgd(params, jax.lax.scan(one, zeros, xs)[0])

    xs = S((micro, batch, length, d), "float32")
    return train_step, ([weights(d) for _ in range(layers)], xs)


def make_convnet(batch=64, size=64, width=64, layers=6):
    def conv(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def residual(x, pair):
        return x + conv(jax.nn.relu(conv(jax.nn.relu(x), pair[0])), pair[1])

    def train_step(params, images, labels):
        def loss(params):
            x = conv(images, params["stem"])
            for pair in params["blocks"]:
                x = residual(x, pair)
            logits = x.mean((1, 2)) @ params["head"]
            return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

        return sgd(params, jax.grad(loss)(params))

    kernel = S((3, 3, width, width), "float32")
    params = {
        "stem": S((3, 3, 3, width), "float32"),
        "blocks": [(kernel, kernel)] * layers,
        "head": S((width, 1000), "float32"),
    }
    images = S((batch, size, size, 3), "float32")
    return jax.jit(train_step), (params, images, S((batch,), "int32"))


def make_decode(layers=8, batch=16, length=2048, heads=8, dim=128):
    d = heads * dim

    @jax.jit
    def decode(params, cache, position, x):
        def layer(x, inputs):
            w, kv = inputs
            new = (x @ w["kv"]).reshape(batch, 1, 2, heads, dim)
            kv = jax.lax.dynamic_update_slice(kv, new, (0, position, 0, 0, 0))
            scores = jax.nn.softmax(
                jnp.einsum("bhd,bkhd->bhk", x.reshape(batch, heads, dim), kv[:, :, 0])
            )
            return x + jnp.einsum("bhk,bkhd->bhd", scores, kv[:, :, 1]).reshape(batch, d), kv

        return jax.lax.scan(layer, x, (params, cache))

    cache = S((layers, batch, length, 2, heads, dim), "float32")
    params = {"kv": S((layers, d, 2 * d), "float32")}
    return decode, (params, cache, S((), "int32"), S((batch, d), "float32"))


def make_static_arguments(batch=4096, d=1024, layers=8):
    def layer(x, w, kind="gelu", is_wide: bool = True):
        h = x @ w["up"] if is_wide else x
        return x + (jax.nn.gelu(h) if kind == "gelu" else jnp.tanh(h)) @ w["down"]

    @jax.jit
    def train_step(params, x):
        def loss(params):
            h = x
            for w in params:
                h = layer(h, w, "gelu", True)
            return (h**2).mean()

        return sgd(params, jax.grad(loss)(params))

    w = {"up": S((d, 4 * d), "float32"), "down": S((4 * d, d), "float32")}
    return train_step, ([w] * layers, S((batch, d), "float32"))
