# mypy: ignore-errors
"""Fault: optimizer. Parameters and Adam moments are divided over "fsdp", but the EMA copy of the weights is placed on every device whole."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


class DiTBlock(eqx.Module):
    qkv: eqx.nn.Linear
    proj: eqx.nn.Linear
    fc1: eqx.nn.Linear
    fc2: eqx.nn.Linear
    modulation: eqx.nn.Linear
    heads: int = eqx.field(static=True)

    def __init__(self, dim, heads, key):
        k = jax.random.split(key, 5)
        self.qkv = eqx.nn.Linear(dim, 3 * dim, key=k[0])
        self.proj = eqx.nn.Linear(dim, dim, key=k[1])
        self.fc1 = eqx.nn.Linear(dim, 4 * dim, key=k[2])
        self.fc2 = eqx.nn.Linear(4 * dim, dim, key=k[3])
        self.modulation = eqx.nn.Linear(dim, 4 * dim, key=k[4])
        self.heads = heads

    def __call__(self, x, cond):
        n, d = x.shape
        s1, b1, s2, b2 = jnp.split(self.modulation(jax.nn.silu(cond)), 4)
        h = jax.nn.standardize(x) * (1 + s1) + b1
        q, k, v = jnp.split(jax.vmap(self.qkv)(h).reshape(n, self.heads, -1), 3, axis=-1)
        a = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5)
        x = x + jax.vmap(self.proj)(jnp.einsum("hqk,khd->qhd", a, v).reshape(n, d))
        h = jax.nn.standardize(x) * (1 + s2) + b2
        return x + jax.vmap(self.fc2)(jax.nn.gelu(jax.vmap(self.fc1)(h)))


class DiT(eqx.Module):
    patch: eqx.nn.Linear
    time: eqx.nn.MLP
    pos: jax.Array
    blocks: list
    out: eqx.nn.Linear

    def __init__(self, key, dim=768, depth=6, heads=12, tokens=64, channels=64):
        k = jax.random.split(key, depth + 4)
        self.patch = eqx.nn.Linear(channels, dim, key=k[0])
        self.time = eqx.nn.MLP(64, dim, dim, 1, jax.nn.silu, key=k[1])
        self.pos = jax.random.normal(k[2], (tokens, dim)) * 0.02
        self.blocks = [DiTBlock(dim, heads, kk) for kk in k[4:]]
        self.out = eqx.nn.Linear(dim, channels, key=k[3])

    def __call__(self, x, t):
        freq = jnp.exp(jnp.linspace(0.0, 6.0, 32))
        cond = self.time(jnp.concatenate([jnp.sin(t * freq), jnp.cos(t * freq)]))
        x = jax.vmap(self.patch)(x) + self.pos
        for block in self.blocks:
            x = eqx.filter_checkpoint(block)(x, cond)
        return jax.vmap(self.out)(x)


def flow_loss(model, x1, key):
    kt, kn = jax.random.split(key)
    t = jax.random.uniform(kt, (x1.shape[0],))
    x0 = jax.random.normal(kn, x1.shape)
    xt = (1 - t)[:, None, None] * x0 + t[:, None, None] * x1
    return jnp.mean((jax.vmap(model)(xt, t) - (x1 - x0)) ** 2)


def fsdp(mesh, tree):
    """The first dimension that the mesh divides, for everything but vectors."""

    def one(x):
        axes = [i for i, n in enumerate(x.shape) if n % mesh.size == 0]
        spec = P(*[None] * axes[0], "fsdp") if axes and len(x.shape) > 1 else P()
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    return jax.tree.map(one, tree)


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    everywhere = NamedSharding(mesh, P())
    optim = optax.adamw(1e-4, b2=0.95)
    abstract = eqx.filter_eval_shape(DiT, jax.random.key(0))
    params, static = eqx.partition(abstract, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    opt_state = fsdp(mesh, jax.eval_shape(optim.init, params))
    ema = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere), params)  # FAULT
    state = (fsdp(mesh, params), opt_state, ema)

    def step(state, images, key):
        params, opt_state, ema = state
        loss, grads = jax.value_and_grad(lambda p: flow_loss(eqx.combine(p, static), images, key))(params)
        updates, opt_state = optim.update(grads, opt_state, params)
        params = eqx.apply_updates(params, updates)
        ema = optax.incremental_update(params, ema, 1e-4)
        return (params, opt_state, ema), loss

    keep = jax.tree.map(lambda x: x.sharding, state)
    images = jax.ShapeDtypeStruct((64, 64, 64), jnp.float32, sharding=NamedSharding(mesh, P("fsdp")))
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.jit(step, out_shardings=(keep, everywhere), donate_argnums=0), (state, images, key)
