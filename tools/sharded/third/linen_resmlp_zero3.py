# mypy: ignore-errors
"""Fault: gathered. A residual MLP in linen gathers each partitioned kernel for its layer, and without remat all gathered kernels wait for the backward pass."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
WIDTH, LAYERS, BATCH = 1536, 12, 2048


class GatheredDense(nn.Module):
    features: int
    mesh: Mesh

    @nn.compact
    def __call__(self, x):
        init = nn.with_partitioning(nn.initializers.lecun_normal(), ("shard", None))
        kernel = self.param("kernel", init, (x.shape[-1], self.features))
        whole = jax.lax.with_sharding_constraint(kernel, NamedSharding(self.mesh, P(None, None)))  # FAULT
        return x @ whole  # FAULT


class Block(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, x, _):
        h = GatheredDense(WIDTH, self.mesh)(nn.LayerNorm(use_bias=False, use_scale=False)(x))
        return x + GatheredDense(WIDTH, self.mesh)(nn.silu(h)), None


class ResMLP(nn.Module):
    mesh: Mesh
    block: type

    @nn.compact
    def __call__(self, x):
        stack = nn.scan(  # FAULT
            self.block,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=LAYERS,
            metadata_params={nn.PARTITION_NAME: None},
        )
        x, _ = stack(self.mesh, name="blocks")(x, None)  # FAULT
        return x


def program(devices, block):
    mesh = Mesh(np.array(devices), ("shard",))
    model = ResMLP(mesh, block)
    tx = optax.sgd(1e-2)
    x = jax.ShapeDtypeStruct((BATCH, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P("shard")))
    boxed = jax.eval_shape(model.init, jax.random.key(0), x)
    specs = nn.get_partition_spec(boxed)
    params = jax.tree.map(lambda s, p: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=NamedSharding(mesh, p)), nn.unbox(boxed), specs)

    def loss(params, x, y):
        return jnp.mean((model.apply(params, x) - y) ** 2)

    def train_step(params, x, y):
        grads = jax.grad(loss)(params, x, y)
        grads = jax.tree.map(lambda g, p: jax.lax.with_sharding_constraint(g, NamedSharding(mesh, p)), grads, specs)
        updates, _ = tx.update(grads, tx.init(params), params)
        return optax.apply_updates(params, updates)

    outs = jax.tree.map(lambda s: s.sharding, params)
    return jax.jit(train_step, donate_argnums=0, out_shardings=outs), (params, x, x)


def make_faulty(devices):
    return program(devices, Block)  # FAULT


def make_fixed(devices):
    return program(devices, nn.remat(Block, prevent_cse=False))
