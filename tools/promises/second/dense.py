# mypy: ignore-errors
"""Segmentation, distillation and fields in Equinox and plain JAX, on the CPU."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

TARGETS = ("cpu",)


def is_shape(leaf):
    return isinstance(leaf, jax.ShapeDtypeStruct)


class Double(eqx.Module):
    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d

    def __init__(self, inputs, outputs, key):
        a, b = jax.random.split(key)
        self.first = eqx.nn.Conv2d(inputs, outputs, 3, padding=1, key=a)
        self.second = eqx.nn.Conv2d(outputs, outputs, 3, padding=1, key=b)

    def __call__(self, x):
        return jax.nn.relu(self.second(jax.nn.relu(self.first(x))))


class UNet(eqx.Module):
    down: list
    up: list
    last: eqx.nn.Conv2d

    def __init__(self, key, features=(32, 64, 128)):
        keys = iter(jax.random.split(key, 8))
        inputs = (3, *features[:-1])
        self.down = [Double(i, o, next(keys)) for i, o in zip(inputs, features, strict=True)]
        self.up = [Double(128 + 64, 64, next(keys)), Double(64 + 32, 32, next(keys))]
        self.last = eqx.nn.Conv2d(32, 21, 1, key=next(keys))

    def __call__(self, x):
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = eqx.nn.MaxPool2d(2, 2)(x)
        x = kept.pop()
        for block in self.up:
            other = kept.pop()
            x = jax.image.resize(x, (x.shape[0], *other.shape[1:]), "nearest")
            x = block(jnp.concatenate([x, other]))
        return self.last(x)


def make_unet(batch=8, size=128):
    model = eqx.filter_eval_shape(UNet, jax.random.key(0))
    params, static = eqx.partition(model, is_shape)
    optimizer = optax.adam(1e-3)

    def train_step(params, state, images, masks):
        def loss_fn(params):
            logits = jax.vmap(eqx.combine(params, static))(images)
            logits = jnp.moveaxis(logits, 1, -1)
            return optax.softmax_cross_entropy_with_integer_labels(logits, masks).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, state = optimizer.update(grads, state)
        return eqx.apply_updates(params, updates), state, loss

    images = jax.ShapeDtypeStruct((batch, 3, size, size), jnp.float32)
    masks = jax.ShapeDtypeStruct((batch, size, size), jnp.int32)
    return jax.jit(train_step), (params, jax.eval_shape(optimizer.init, params), images, masks)


def make_distill(batch=16, length=128, vocab=8192, width=256):
    """A student of four layers learns the logits of a teacher of eight."""

    def forward(params, tokens):
        x = params["embed"][tokens]

        def layer(x, w):
            mixed = jax.nn.softmax(x @ jnp.swapaxes(x @ w["mix"], 1, 2) / width) @ x
            return x + jax.nn.gelu((x + mixed) @ w["up"]) @ w["down"], None

        x, _ = jax.lax.scan(layer, x, params["layers"])
        return x @ params["out"]

    @jax.jit
    def train_step(student, teacher, tokens):
        goal = jax.nn.softmax(forward(teacher, tokens) / 2)

        def loss_fn(student):
            return -(goal * jax.nn.log_softmax(forward(student, tokens) / 2)).sum(-1).mean()

        loss, grads = jax.value_and_grad(loss_fn)(student)
        return jax.tree.map(lambda p, g: p - 0.1 * g, student, grads), loss

    s = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)

    def model(layers):
        stack = {"mix": s(layers, width, width), "up": s(layers, width, 4 * width),
                 "down": s(layers, 4 * width, width)}  # fmt: skip
        return {"embed": s(vocab, width), "out": s(width, vocab), "layers": stack}

    return train_step, (model(4), model(8), jax.ShapeDtypeStruct((batch, length), jnp.int32))


def make_nerf(rays=2048, samples=64, width=128, depth=6):
    """Colors along rays by a small network that is evaluated at every sample."""

    def encode(x):
        scaled = x[..., None, :] * 2.0 ** jnp.arange(6)[:, None]
        return jnp.concatenate([jnp.sin(scaled), jnp.cos(scaled)], -1).reshape(*x.shape[:-1], -1)

    def field(params, x):
        h = encode(x) @ params["in"]
        for w, b in params["hidden"]:
            h = jax.nn.relu(h @ w + b)
        out = h @ params["out"]
        return jax.nn.sigmoid(out[..., :3]), jax.nn.softplus(out[..., 3])

    def render(params, origins, directions):
        t = jnp.linspace(2.0, 6.0, samples)
        points = origins[:, None] + t[:, None] * directions[:, None]
        color, density = field(params, points)
        alpha = 1 - jnp.exp(-density * 4.0 / samples)
        through = jnp.cumprod(1 - alpha + 1e-10, axis=-1)
        return ((alpha * through)[..., None] * color).sum(1)

    @jax.jit
    def train_step(params, origins, directions, colors):
        loss_fn = lambda p: jnp.mean((render(p, origins, directions) - colors) ** 2)
        loss, grads = jax.value_and_grad(loss_fn)(params)
        return jax.tree.map(lambda p, g: p - 5e-4 * g, params, grads), loss

    s = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    params = {"in": s(36, width), "hidden": [(s(width, width), s(width))] * depth,
              "out": s(width, 4)}  # fmt: skip
    return train_step, (params, s(rays, 3), s(rays, 3), s(rays, 3))
