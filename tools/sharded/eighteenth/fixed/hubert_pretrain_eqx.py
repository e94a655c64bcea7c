# mypy: ignore-errors
"""Clean. The Adam moments take the spec of the weight they belong to.

Masked-unit pretraining (HuBERT style) of a speech encoder written with equinox and optax.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

DIM, FFN, HEADS, LAYERS = 1024, 4096, 16, 6
FRAMES, FBANK, UNITS, BATCH = 128, 80, 512, 8


class Attention(eqx.Module):
    qkv: jax.Array
    out: jax.Array

    def __init__(self, key):
        k1, k2 = jax.random.split(key)
        self.qkv = jax.random.normal(k1, (DIM, 3 * DIM)) * 0.02
        self.out = jax.random.normal(k2, (DIM, DIM)) * 0.02

    def __call__(self, x):
        q, k, v = jnp.split(x @ self.qkv, 3, axis=-1)
        q, k, v = (t.reshape(*t.shape[:2], HEADS, DIM // HEADS) for t in (q, k, v))
        y = jax.nn.dot_product_attention(q, k, v)
        return y.reshape(x.shape) @ self.out


class FeedForward(eqx.Module):
    up: jax.Array
    down: jax.Array

    def __init__(self, key):
        k1, k2 = jax.random.split(key)
        self.up = jax.random.normal(k1, (DIM, FFN)) * 0.02
        self.down = jax.random.normal(k2, (FFN, DIM)) * 0.02

    def __call__(self, x):
        return jax.nn.gelu(x @ self.up) @ self.down


class Block(eqx.Module):
    attn: Attention
    ffn: FeedForward
    norm1: jax.Array
    norm2: jax.Array

    def __init__(self, key):
        k1, k2 = jax.random.split(key)
        self.attn, self.ffn = Attention(k1), FeedForward(k2)
        self.norm1, self.norm2 = jnp.ones(DIM), jnp.ones(DIM)

    def __call__(self, x):
        x = x + self.attn(normalise(x) * self.norm1)
        return x + self.ffn(normalise(x) * self.norm2)


class Encoder(eqx.Module):
    proj: jax.Array
    mask_vector: jax.Array
    blocks: Block  # stacked over layers
    units: jax.Array

    def __init__(self, key):
        kp, kb, ku = jax.random.split(key, 3)
        self.proj = jax.random.normal(kp, (FBANK, DIM)) * 0.02
        self.mask_vector = jnp.zeros(DIM)
        self.blocks = eqx.filter_vmap(Block)(jax.random.split(kb, LAYERS))
        self.units = jax.random.normal(ku, (DIM, UNITS)) * 0.02

    def __call__(self, fbank, mask, pin):
        x = pin(jnp.where(mask[..., None], self.mask_vector, fbank @ self.proj))
        x, _ = jax.lax.scan(jax.checkpoint(lambda h, blk: (pin(blk(h)), None)), x, self.blocks)
        return normalise(x) @ self.units


def normalise(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-5)


COLUMN = {"qkv", "up", "units"}
ROW = {"out", "down"}


def weight_spec(path, leaf):
    """Megatron columns/rows over tp, the other dimension over fsdp; layer axis never split."""
    name = path[-1].name
    lead = (None,) * (leaf.ndim - 2)
    if name in COLUMN:
        return P(*lead, "fsdp", "tp")
    if name in ROW:
        return P(*lead, "tp", "fsdp")
    return P()


def moment_spec(path, leaf):
    """Placement of what optax keeps for a weight: that of the weight."""
    if leaf.ndim < 2:
        return P()
    return weight_spec(path, leaf)


def specs_of(tree, rule):
    return jax.tree_util.tree_map_with_path(rule, tree)


def masked_unit_loss(model, batch, pin):
    logits = model(batch["fbank"], batch["mask"], pin)
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, batch["units"])
    return jnp.sum(nll * batch["mask"]) / jnp.maximum(batch["mask"].sum(), 1)


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("fsdp", "tp"))
    tx = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 5e-4, 100, 10_000))
    )
    model = eqx.filter_eval_shape(Encoder, jax.random.key(0))
    opt_state = jax.eval_shape(tx.init, model)

    def placed(tree, rule):
        return jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, s)),
            tree,
            specs_of(tree, rule),
        )

    model = placed(model, weight_spec)
    opt_state = placed(opt_state, moment_spec)
    sharding_of = lambda tree: jax.tree.map(lambda x: x.sharding, tree)  # noqa: E731
    scalar = NamedSharding(mesh, P())
    rows = NamedSharding(mesh, P("fsdp"))

    def pin(x):
        return jax.lax.with_sharding_constraint(x, rows)

    def train_step(model, opt_state, batch):
        loss, grads = jax.value_and_grad(masked_unit_loss)(model, batch, pin)
        updates, opt_state = tx.update(grads, opt_state, model)
        return optax.apply_updates(model, updates), opt_state, loss

    step = jax.jit(
        train_step,
        donate_argnums=(0, 1),
        out_shardings=(sharding_of(model), sharding_of(opt_state), scalar),
    )
    batch = {
        "fbank": jax.ShapeDtypeStruct((BATCH, FRAMES, FBANK), jnp.float32, sharding=rows),
        "mask": jax.ShapeDtypeStruct((BATCH, FRAMES), jnp.bool_, sharding=rows),
        "units": jax.ShapeDtypeStruct((BATCH, FRAMES), jnp.int32, sharding=rows),
    }
    return step, (model, opt_state, batch)
