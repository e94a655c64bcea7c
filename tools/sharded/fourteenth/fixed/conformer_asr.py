# mypy: ignore-errors
"""Fixed."""
import dataclasses
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
AXIS = "dp"

POLICIES = {
    "all": jax.checkpoint_policies.everything_saveable,
    "dots": jax.checkpoint_policies.dots_saveable,
}


@dataclasses.dataclass
class AsrConfig:
    dim: int = 768
    layers: int = 4
    heads: int = 12
    mels: int = 80
    vocab: int = 1024
    kernel: int = 15
    frames: int = 256
    batch: int = 4
    remat: str = "dots"


class Conformer(eqx.Module):
    ff1: tuple
    wqkv: jax.Array
    wo: jax.Array
    pw1: jax.Array
    dw: jax.Array
    pw2: jax.Array
    ff2: tuple
    heads: int = eqx.field(static=True)

    def __init__(self, c, key):
        k = iter(jax.random.split(key, 9))
        init = lambda *s: jax.random.normal(next(k), s) * s[0] ** -0.5
        d = c.dim
        self.ff1, self.ff2 = (init(d, 4 * d), init(4 * d, d)), (init(d, 4 * d), init(4 * d, d))
        self.wqkv, self.wo = init(d, 3 * d), init(d, d)
        self.pw1, self.dw, self.pw2 = init(d, 2 * d), init(c.kernel, 1, d), init(d, d)
        self.heads = c.heads

    def __call__(self, x):
        b, t, d = x.shape
        x = x + 0.5 * (jax.nn.silu(norm(x) @ self.ff1[0]) @ self.ff1[1])
        q, k, v = jnp.split((norm(x) @ self.wqkv).reshape(b, t, self.heads, -1), 3, -1)
        x = x + jax.nn.dot_product_attention(q, k, v).reshape(b, t, d) @ self.wo
        h = jax.nn.glu(norm(x) @ self.pw1)
        h = lax.conv_general_dilated(h, self.dw, (1,), "SAME", feature_group_count=d, dimension_numbers=("NTC", "TIO", "NTC"))
        x = x + jax.nn.silu(norm(h)) @ self.pw2
        return norm(x + 0.5 * (jax.nn.silu(norm(x) @ self.ff2[0]) @ self.ff2[1]))


def norm(x):
    y = x.astype(jnp.float32)
    return ((y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)).astype(x.dtype)


class Encoder(eqx.Module):
    stem: jax.Array
    blocks: list
    head: jax.Array

    def __init__(self, c, key):
        ks = jax.random.split(key, c.layers + 2)
        self.stem = jax.random.normal(ks[0], (c.mels, c.dim)) * 0.1
        self.blocks = [Conformer(c, k) for k in ks[2:]]
        self.head = jax.random.normal(ks[1], (c.dim, c.vocab)) * 0.02


def axis_of(w):  # the largest dimension
    return int(np.argmax(w.shape))


def unshard(w, dim):
    return lax.all_gather(w.astype(jnp.bfloat16), AXIS, axis=dim, tiled=True)


def make_fixed(devices):
    cfg = AsrConfig()
    mesh = Mesh(np.array(devices), (AXIS,))
    model = eqx.filter_eval_shape(Encoder, cfg, jax.random.key(0))
    dims = jax.tree.map(axis_of, model)
    specs = jax.tree.map(lambda w: P(*[AXIS if i == axis_of(w) else None for i in range(len(w.shape))]), model)
    tx = optax.sgd(3e-4, momentum=0.9)

    def loss_fn(model, mels, labels):
        x = mels.astype(jnp.bfloat16) @ unshard(model.stem, dims.stem)
        for block, d in zip(model.blocks, dims.blocks):
            run = lambda m, x, d=d: jax.tree.map(unshard, m, d)(x)
            x = jax.checkpoint(run, policy=POLICIES[cfg.remat])(block, x)
        logits = (x @ unshard(model.head, dims.head)).astype(jnp.float32)
        frame_labels = jax.nn.one_hot(labels, cfg.vocab)
        return -(jax.nn.log_softmax(logits) * frame_labels).sum(-1).mean() / len(devices)

    def local_step(model, opt, mels, labels):
        loss, grads = jax.value_and_grad(loss_fn)(model, mels, labels)
        updates, opt = tx.update(grads, opt, model)
        return optax.apply_updates(model, updates), opt, lax.psum(loss, AXIS)

    opt = jax.eval_shape(tx.init, model)
    opt_specs = optax.tree_map_params(tx, lambda _, s: s, opt, specs, transform_non_params=lambda _: P())
    data = (P(AXIS), P(AXIS))
    step = jax.shard_map(local_step, mesh=mesh, in_specs=(specs, opt_specs, *data), out_specs=(specs, opt_specs, P()))

    place = lambda t, s: jax.tree.map(lambda a, p: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, p)), t, s)
    mels = jax.ShapeDtypeStruct((cfg.batch, cfg.frames, cfg.mels), jnp.float32, sharding=NamedSharding(mesh, P(AXIS)))
    labels = jax.ShapeDtypeStruct((cfg.batch, cfg.frames), jnp.int32, sharding=NamedSharding(mesh, P(AXIS)))
    return jax.jit(step, donate_argnums=(0, 1)), (place(model, specs), place(opt, opt_specs), mels, labels)
