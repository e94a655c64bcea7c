# mypy: ignore-errors
"""Clean. An equinox decoder stack with tensor parallelism and, between the blocks, sequence
parallelism; the layers are scanned and rematerialised, AdamW is laid out like the weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

LAYERS, DIM, HEADS, HIDDEN, VOCAB = 4, 512, 8, 2048, 8192
BATCH, SEQ = 8, 512


class Layer(eqx.Module):
    qkv: jax.Array
    proj: jax.Array
    up: jax.Array
    down: jax.Array
    mesh: Mesh = eqx.field(static=True)

    def pin(self, x, *spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, P(*spec)))

    def attend(self, x):
        b, t, d = x.shape
        q, k, v = jnp.einsum("btd,dshk->sbthk", x, self.qkv)
        q = self.pin(q, "dp", None, "tp", None)
        scores = jnp.einsum("bqhk,bmhk->bhqm", q, k) * (d // HEADS) ** -0.5
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
        mixed = jnp.einsum("bhqm,bmhk->bqhk", jax.nn.softmax(scores), v)
        return jnp.einsum("bqhk,hkd->bqd", mixed, self.proj)

    def __call__(self, x):
        x = self.pin(x + self.attend(rms(x)), "dp", "tp", None)
        h = self.pin(jax.nn.gelu(rms(x) @ self.up), "dp", None, "tp")
        return self.pin(x + h @ self.down, "dp", "tp", None)


class Decoder(eqx.Module):
    embed: jax.Array
    layers: Layer
    unembed: jax.Array


def rms(x):
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)


def abstract_model(mesh):
    def array(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    head = DIM // HEADS
    layers = Layer(
        qkv=array((LAYERS, DIM, 3, HEADS, head), None, "dp", None, "tp", None),
        proj=array((LAYERS, HEADS, head, DIM), None, "tp", None, "dp"),
        up=array((LAYERS, DIM, HIDDEN), None, "dp", "tp"),
        down=array((LAYERS, HIDDEN, DIM), None, "tp", "dp"),
        mesh=mesh,
    )
    return Decoder(array((VOCAB, DIM), "tp", "dp"), layers, array((DIM, VOCAB), "dp", "tp"))


def forward(model, tokens):
    def body(x, layer):
        return layer(x), None

    x = model.layers.pin(model.embed[tokens], "dp", "tp", None)
    x, _ = jax.lax.scan(jax.checkpoint(body, prevent_cse=False), x, model.layers)
    return model.layers.pin(rms(x) @ model.unembed, "dp", None, "tp")


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("dp", "tp"))
    model = abstract_model(mesh)
    tx = optax.adamw(1e-3)
    placed = jax.tree.map(lambda leaf: leaf.sharding, model)
    opt_state = optax.tree_map_params(
        tx,
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        jax.eval_shape(tx.init, model),
        placed,
        transform_non_params=lambda leaf: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, P())
        ),
    )
    rows = NamedSharding(mesh, P("dp", None))
    tokens = jax.ShapeDtypeStruct((BATCH, SEQ), jnp.int32, sharding=rows)
    state_shardings = (placed, jax.tree.map(lambda leaf: leaf.sharding, opt_state))

    def train_step(model, opt_state, tokens, labels):
        def loss_fn(model):
            logits = forward(model, tokens)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_fn)(model)
        updates, opt_state = tx.update(grads, opt_state, model)
        return optax.apply_updates(model, updates), opt_state, loss

    fn = jax.jit(
        train_step,
        donate_argnums=(0, 1),
        out_shardings=(*state_shardings, NamedSharding(mesh, P())),
    )
    return fn, (model, opt_state, tokens, tokens)
