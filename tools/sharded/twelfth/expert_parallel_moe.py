# mypy: ignore-errors
"""Clean. A switch mixture of experts in shard_map: tokens are divided over all devices, experts
over one mesh axis, their hidden units over the other; tokens travel by all_to_all."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

EXPERTS, DIM, HIDDEN, LAYERS = 16, 1024, 4096, 4
TOKENS = 32768
CAPACITY_FACTOR = 1.25

SPECS = {
    "router": P(None, None, None),
    "w_in": P(None, "expert", None, "hidden"),
    "w_out": P(None, "expert", "hidden", None),
}


def dispatch(x, router):
    """Where each token of this device goes, and what its expert's answer is weighed by."""
    capacity = int(CAPACITY_FACTOR * x.shape[0] / EXPERTS)
    gates = jax.nn.softmax(x.astype(jnp.float32) @ router, axis=-1)
    expert = jnp.argmax(gates, axis=-1)
    taken = jax.nn.one_hot(expert, EXPERTS, dtype=jnp.int32)
    place = (jnp.cumsum(taken, axis=0) * taken).sum(-1) - 1
    slot = jnp.where(place < capacity, expert * capacity + place, EXPERTS * capacity)
    return slot, gates.max(axis=-1), capacity


def experts(x, w_in, w_out):
    """x: (experts here, rows, dim). The hidden units are divided: the results are summed."""
    x = jax.lax.all_gather(x, "hidden", axis=1, tiled=True)
    h = jax.nn.relu(jnp.einsum("ecd,edf->ecf", x, w_in))
    partial = jnp.einsum("ecf,efd->ecd", h, w_out)
    return jax.lax.psum_scatter(partial, "hidden", scatter_dimension=1, tiled=True)


def moe_layer(x, layer):
    slot, gate, capacity = dispatch(x, layer["router"])
    buffer = jnp.zeros((EXPERTS * capacity + 1, DIM), x.dtype).at[slot].set(x)
    buffer = buffer[:-1].reshape(EXPERTS, capacity, DIM)
    received = jax.lax.all_to_all(buffer, "expert", split_axis=0, concat_axis=1, tiled=True)
    answered = experts(received, layer["w_in"], layer["w_out"])
    returned = jax.lax.all_to_all(answered, "expert", split_axis=1, concat_axis=0, tiled=True)
    flat = jnp.concatenate([returned.reshape(-1, DIM), jnp.zeros((1, DIM), x.dtype)])
    return x + gate[:, None].astype(x.dtype) * flat[slot], None


def local_forward(params, tokens):
    out, _ = jax.lax.scan(moe_layer, tokens, params)
    return out


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("expert", "hidden"))
    everywhere = P(("expert", "hidden"), None)
    shapes = {
        "router": ((LAYERS, DIM, EXPERTS), jnp.float32),
        "w_in": ((LAYERS, EXPERTS, DIM, HIDDEN), jnp.bfloat16),
        "w_out": ((LAYERS, EXPERTS, HIDDEN, DIM), jnp.bfloat16),
    }
    params = {
        n: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, SPECS[n]))
        for n, (shape, dtype) in shapes.items()
    }
    tokens = jax.ShapeDtypeStruct(
        (TOKENS, DIM), jnp.bfloat16, sharding=NamedSharding(mesh, everywhere)
    )
    forward = jax.shard_map(
        local_forward,
        mesh=mesh,
        in_specs=(SPECS, everywhere),
        out_specs=everywhere,
        check_vma=False,
    )
    return jax.jit(forward, donate_argnums=1), (params, tokens)
