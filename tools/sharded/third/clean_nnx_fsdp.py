# mypy: ignore-errors
"""Clean. An nnx model of audio frames, fully sharded by its metadata, each layer gathered under remat and the optimizer as the weights."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
DIM, HIDDEN, DEPTH, MEL = 1024, 4096, 2, 128


def part(*names):
    return nnx.with_metadata(nnx.initializers.lecun_normal(), out_sharding=names, eager_sharding=False)


class Mix(nnx.Module):
    def __init__(self, rngs):
        make = lambda m, n, *names: nnx.Linear(m, n, use_bias=False, kernel_init=part(*names), rngs=rngs)
        self.value, self.gate = make(DIM, DIM, "fsdp", None), make(DIM, DIM, "fsdp", None)
        self.up, self.down = make(DIM, HIDDEN, "fsdp", None), make(HIDDEN, DIM, "fsdp", None)

    def __call__(self, x):
        earlier = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        x = x + nnx.sigmoid(self.gate(earlier)) * self.value(x)
        return x + self.down(nnx.gelu(self.up(x)))


class Frames(nnx.Module):
    def __init__(self, rngs):
        self.stem = nnx.Linear(MEL, DIM, use_bias=False, kernel_init=part(None, "fsdp"), rngs=rngs)
        self.head = nnx.Linear(DIM, MEL, use_bias=False, kernel_init=part("fsdp", None), rngs=rngs)
        self.blocks = nnx.List([Mix(rngs) for _ in range(DEPTH)])

    def __call__(self, mel, pin):
        x = pin(self.stem(mel))
        for block in self.blocks:
            x = pin(nnx.remat(Mix.__call__)(block, x))
        return self.head(x)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    batch = NamedSharding(mesh, P("fsdp"))
    graph, state = nnx.split(nnx.eval_shape(lambda: Frames(nnx.Rngs(0))), nnx.Param)
    specs = nnx.get_partition_spec(state)
    pure, specs = nnx.to_pure_dict(state), nnx.to_pure_dict(specs)
    place = lambda s, p: jax.ShapeDtypeStruct(s.shape, jnp.float32, sharding=NamedSharding(mesh, p))
    params = jax.tree.map(place, pure, specs)
    pin = lambda x: jax.lax.with_sharding_constraint(x, batch)

    def loss(params, mel):
        full = nnx.clone(state)
        nnx.replace_by_pure_dict(full, params)
        return jnp.mean((nnx.merge(graph, full)(mel[:, :-1], pin) - mel[:, 1:]) ** 2)

    def step(params, momentum, mel):
        grads = jax.grad(loss)(params, mel)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - 1e-2 * m, params, momentum), momentum

    outs = jax.tree.map(lambda s: s.sharding, (params, params))
    mel = jax.ShapeDtypeStruct((64, 1025, MEL), jnp.float32, sharding=batch)
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=outs), (params, params, mel)
