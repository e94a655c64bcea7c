# mypy: ignore-errors
"""Fault: gathered. The loss unshards the whole model at its start; the gathered weights of all blocks
live through the forward pass and on into the backward pass."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

SEQS, RES, MSA_DIM, PAIR_DIM, HEADS, BLOCKS = 8, 64, 512, 128, 8, 8


class Linear(eqx.Module):
    weight: jax.Array

    def __init__(self, key, n_in, n_out):
        self.weight = jax.random.normal(key, (n_in, n_out)) / np.sqrt(n_in)

    def __call__(self, x):
        return x @ self.weight


class RowAttention(eqx.Module):
    qkv: Linear
    bias: Linear
    out: Linear

    def __init__(self, key):
        a, b, c = jax.random.split(key, 3)
        self.qkv = Linear(a, MSA_DIM, 3 * MSA_DIM)
        self.bias = Linear(b, PAIR_DIM, HEADS)
        self.out = Linear(c, MSA_DIM, MSA_DIM)

    def __call__(self, msa, pair):
        q, k, v = jnp.split(self.qkv(msa).reshape(*msa.shape[:-1], HEADS, -1), 3, -1)
        logits = jnp.einsum("bsihd,bsjhd->bhij", q, k) / np.sqrt(SEQS * q.shape[-1])
        att = jax.nn.softmax(logits + jnp.moveaxis(self.bias(pair), -1, 1), -1)
        return self.out(jnp.einsum("bhij,bsjhd->bsihd", att, v).reshape(msa.shape))


class EvoBlock(eqx.Module):
    row: RowAttention
    up: Linear
    down: Linear
    left: Linear
    right: Linear
    pair_out: Linear

    def __init__(self, key):
        k = jax.random.split(key, 6)
        self.row = RowAttention(k[0])
        self.up, self.down = Linear(k[1], MSA_DIM, 8 * MSA_DIM), Linear(k[2], 8 * MSA_DIM, MSA_DIM)
        self.left, self.right = Linear(k[3], MSA_DIM, 32), Linear(k[4], MSA_DIM, 32)
        self.pair_out = Linear(k[5], 32, PAIR_DIM)

    def __call__(self, msa, pair):
        msa = msa + self.row(norm(msa), pair)
        msa = msa + self.down(jax.nn.relu(self.up(norm(msa))))
        outer = jnp.einsum("bsic,bsjc->bijc", self.left(norm(msa)), self.right(norm(msa))) / SEQS
        return msa, pair + self.pair_out(outer)


class MSAFormer(eqx.Module):
    embed: Linear
    pair: Linear
    blocks: EvoBlock  # stacked
    head: Linear

    def __init__(self, key):
        a, b, c, d = jax.random.split(key, 4)
        self.embed, self.pair, self.head = Linear(a, 32, MSA_DIM), Linear(b, 32, PAIR_DIM), Linear(c, MSA_DIM, 32)
        self.blocks = eqx.filter_vmap(EvoBlock)(jax.random.split(d, BLOCKS))


def norm(x):
    return jax.nn.standardize(x, axis=-1)


def unshard(mesh, tree):
    return jax.tree.map(lambda w: jax.lax.with_sharding_constraint(w, NamedSharding(mesh, P())), tree)


def trunk(block, model, onehot):
    """Run the stacked blocks over the embedded alignment; the cross entropy of its residues."""
    msa, pair = model.embed(onehot), model.pair(onehot[:, 0, :, None] + onehot[:, 0, None, :])
    body = jax.checkpoint(lambda carry, weights: (block(weights, *carry), None))
    (msa, _), _ = jax.lax.scan(body, (msa, pair), model.blocks)
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(model.head(norm(msa))) * onehot, -1))


def masked_loss(model, onehot, mesh):
    model = unshard(mesh, model)  # FAULT
    return trunk(EvoBlock.__call__, model, onehot)


def masked_loss_per_block(model, onehot, mesh):
    return trunk(lambda block, *xs: unshard(mesh, block)(*xs), model, onehot)


def build(devices, loss_fn):
    mesh = Mesh(np.array(devices), ("fsdp",))
    opt = optax.adam(1e-3)

    def fsdp(x):
        dims = [i for i, n in enumerate(x.shape) if n >= 256]
        spec = P(*("fsdp" if dims and i == dims[0] else None for i in range(x.ndim)))
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    def step(model, opt_state, onehot):
        loss, grads = jax.value_and_grad(loss_fn)(model, onehot, mesh)
        updates, opt_state = opt.update(grads, opt_state)
        return optax.apply_updates(model, updates), opt_state, loss

    model = jax.tree.map(fsdp, jax.eval_shape(MSAFormer, jax.random.key(0)))
    opt_state = jax.tree.map(fsdp, jax.eval_shape(opt.init, model))
    same = jax.tree.map(lambda s: s.sharding, (model, opt_state))
    onehot = jax.ShapeDtypeStruct((8, SEQS, RES, 32), jnp.float32, sharding=NamedSharding(mesh, P("fsdp")))
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=(*same, None)), (model, opt_state, onehot)


def make_faulty(devices):
    return build(devices, masked_loss)


def make_fixed(devices):
    return build(devices, masked_loss_per_block)
