# mypy: ignore-errors
"""Clean. Training step of a mixer in flax nnx which segments vessels in photographs of the retina: the batch is split
over "data", the hidden dimensions over "model", and the weights and their moments over both."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

LAYERS, DIM, TOKEN_HIDDEN, CHANNEL_HIDDEN = 6, 256, 2048, 1024
SIDE, PATCH, BATCH = 256, 8, 32
TOKENS = (SIDE // PATCH) ** 2


def linear(inputs, outputs, spec, rngs):
    init = nnx.with_partitioning(nnx.initializers.lecun_normal(), spec)
    return nnx.Linear(inputs, outputs, use_bias=False, kernel_init=init, rngs=rngs)


def constrain(x, *names):
    return jax.lax.with_sharding_constraint(x, P(*names))


class Mlp(nnx.Module):
    def __init__(self, dim, hidden, rngs):
        self.up = linear(dim, hidden, ("data", "model"), rngs)
        self.down = linear(hidden, dim, ("model", "data"), rngs)

    def __call__(self, x):
        h = constrain(self.up(x), "data", None, "model")
        return constrain(self.down(jax.nn.gelu(h)), "data", None, None)


class MixerLayer(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.LayerNorm(DIM, rngs=rngs)
        self.second = nnx.LayerNorm(DIM, rngs=rngs)
        self.tokens = Mlp(TOKENS, TOKEN_HIDDEN, rngs)
        self.channels = Mlp(DIM, CHANNEL_HIDDEN, rngs)

    def __call__(self, x):
        x = x + self.tokens(self.first(x).swapaxes(1, 2)).swapaxes(1, 2)
        return x + self.channels(self.second(x))


class Segmenter(nnx.Module):
    def __init__(self, rngs):
        self.embed = linear(PATCH * PATCH * 3, DIM, ("data", "model"), rngs)
        self.layers = nnx.List([MixerLayer(rngs) for _ in range(LAYERS)])
        self.head = linear(DIM, PATCH * PATCH, ("data", "model"), rngs)

    def __call__(self, images):
        grid = SIDE // PATCH
        patches = images.reshape(-1, grid, PATCH, grid, PATCH, 3).transpose(0, 1, 3, 2, 4, 5)
        x = constrain(self.embed(patches.reshape(-1, TOKENS, PATCH * PATCH * 3)), "data", None, None)
        layer_fn = nnx.remat(lambda layer, x: layer(x))
        for layer in self.layers:
            x = layer_fn(layer, x)
        return constrain(self.head(x), "data", None, "model")


def loss_fn(model, images, vessels):
    logits = model(images)
    overlap = 2.0 * jnp.sum(jax.nn.sigmoid(logits) * vessels)
    dice = 1.0 - overlap / (jnp.sum(jax.nn.sigmoid(logits)) + jnp.sum(vessels) + 1.0)
    return optax.sigmoid_binary_cross_entropy(logits, vessels).mean() + dice


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(4, 2), ("data", "model"))

    def create():
        model = Segmenter(nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)

    with jax.set_mesh(mesh):
        graph, state = nnx.split(nnx.eval_shape(create))
    layout = nnx.get_named_sharding(state, mesh)

    def step(state, images, vessels):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            model, optimizer = nnx.merge(graph, state)
            loss, grads = nnx.value_and_grad(loss_fn)(model, images, vessels)
            optimizer.update(model, grads)
            return nnx.state((model, optimizer)), loss

    state = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), state, layout)
    by_image = NamedSharding(mesh, P("data"))
    images = jax.ShapeDtypeStruct((BATCH, SIDE, SIDE, 3), jnp.float32, sharding=by_image)
    vessels = jax.ShapeDtypeStruct((BATCH, TOKENS, PATCH * PATCH), jnp.float32, sharding=by_image)
    jitted = jax.jit(step, out_shardings=(layout, NamedSharding(mesh, P())), donate_argnums=0)
    return jitted, (state, images, vessels)
