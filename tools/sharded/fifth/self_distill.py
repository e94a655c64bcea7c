# mypy: ignore-errors
"""Clean. Self-distillation with an EMA teacher; student, teacher and optimizer state are split in the same
way (FSDP), each layer is gathered inside of the rematerialised scan body."""
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

BATCH, PATCHES, PATCH, WIDTH, MLP, HEADS, DEPTH, PROTOTYPES = 16, 196, 768, 512, 2048, 8, 6, 4096


class Learner(NamedTuple):
    student: Any
    teacher: Any
    center: Any
    opt: Any


def init_net(key):
    ks = iter(jax.random.split(key, 8))

    def w(*shape):
        return jax.random.normal(next(ks), shape) * shape[-2] ** -0.5

    blocks = dict(
        qkv=w(DEPTH, WIDTH, 3 * WIDTH), proj=w(DEPTH, WIDTH, WIDTH), up=w(DEPTH, WIDTH, MLP), down=w(DEPTH, MLP, WIDTH),
        gain=jnp.ones((DEPTH, 2, WIDTH)),
    )
    return dict(patch=w(PATCH, WIDTH), pos=w(PATCHES, WIDTH), blocks=blocks, head=w(WIDTH, PROTOTYPES))


def fsdp_spec(leaf):
    """Split the last dimension; gains and scalars are small and stay whole."""
    if leaf.ndim < 2 or leaf.size < 2**16:
        return P()
    return P(*[None] * (leaf.ndim - 1), "fsdp")


def norm(x, gain):
    return jax.nn.standardize(x, axis=-1) * gain


def block(w, x):
    b, t, d = x.shape
    q, k, v = jnp.split((norm(x, w["gain"][0]) @ w["qkv"]).reshape(b, t, HEADS, -1), 3, -1)
    x = x + jax.nn.dot_product_attention(q, k, v).reshape(b, t, d) @ w["proj"]
    return x + jax.nn.gelu(norm(x, w["gain"][1]) @ w["up"]) @ w["down"]


class Trainer:
    def __init__(self, devices):
        self.mesh = Mesh(np.array(devices), ("fsdp",))
        self.opt = optax.adamw(optax.cosine_decay_schedule(1e-3, 10000), weight_decay=0.05)

    def on(self, spec):
        return NamedSharding(self.mesh, spec)

    def gather(self, w):
        return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, self.on(P())), w)

    def rows(self, x):
        return jax.lax.with_sharding_constraint(x, self.on(P("fsdp")))

    def net(self, p, patches):
        @jax.checkpoint
        def body(x, w):
            return self.rows(block(self.gather(w), x)), None

        x = self.rows(patches @ self.gather(p["patch"]) + self.gather(p["pos"]))
        x, _ = jax.lax.scan(body, x, p["blocks"])
        return self.rows(jnp.mean(x, 1) @ self.gather(p["head"]))

    def loss(self, student, targets, view):
        logp = jax.nn.log_softmax(self.net(student, view) / 0.1)
        return -jnp.mean(jnp.sum(targets * logp, -1))

    def init(self, key):
        student = init_net(key)
        return Learner(student, jax.tree.map(jnp.copy, student), jnp.zeros(PROTOTYPES), self.opt.init(student))

    def step(self, state, views):
        raw = jax.lax.stop_gradient(self.net(state.teacher, views["global"]))
        targets = jax.nn.softmax((raw - state.center) / 0.04)
        loss, grads = jax.value_and_grad(self.loss)(state.student, targets, views["local"])
        updates, opt = self.opt.update(grads, state.opt, state.student)
        student = optax.apply_updates(state.student, updates)
        teacher = optax.incremental_update(student, state.teacher, 0.004)
        center = 0.9 * state.center + 0.1 * jnp.mean(raw, 0)
        return Learner(student, teacher, center, opt), loss


def make_clean(devices):
    trainer = Trainer(devices)
    state = jax.eval_shape(trainer.init, jax.random.key(0))
    layout = jax.tree.map(lambda x: trainer.on(fsdp_spec(x)), state)
    state = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), state, layout)
    view = partial(jax.ShapeDtypeStruct, (BATCH, PATCHES, PATCH), jnp.float32, sharding=trainer.on(P("fsdp")))
    fn = jax.jit(trainer.step, donate_argnums=0, out_shardings=(layout, trainer.on(P())))
    return fn, (state, {"global": view(), "local": view()})
