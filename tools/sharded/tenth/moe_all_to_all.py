# mypy: ignore-errors
"""Clean. A mixture of 32 experts under shard_map: tokens go to the devices of their experts and back
by all-to-all, only the router is replicated."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

EXPERTS, WIDTH, HIDDEN, TOKENS, CAPACITY = 32, 1024, 8192, 65536, 160


def dispatch(x, router):
    """Slots of each expert, filled in the order of the tokens; what does not fit is left out."""
    gates = jax.nn.softmax((x @ router).astype(jnp.float32))
    expert = jnp.argmax(gates, axis=-1)
    onehot = jax.nn.one_hot(expert, EXPERTS, dtype=jnp.int32)
    slot = jnp.sum(jnp.cumsum(onehot, axis=0) * onehot, axis=-1) - 1
    slots = jnp.zeros((EXPERTS, CAPACITY, x.shape[-1]), x.dtype).at[expert, slot].set(x, mode="drop")
    return slots, expert, slot, jnp.max(gates, axis=-1)


def moe(x, router, w_in, w_out):
    slots, expert, slot, gate = dispatch(x, router)
    slots = lax.all_to_all(slots, "ep", split_axis=0, concat_axis=1, tiled=True)
    hidden = jax.nn.gelu(jnp.einsum("ecw,ewh->ech", slots, w_in))
    slots = jnp.einsum("ech,ehw->ecw", hidden, w_out)
    slots = lax.all_to_all(slots, "ep", split_axis=1, concat_axis=0, tiled=True)
    y = slots.at[expert, slot].get(mode="fill", fill_value=0)
    return x + y * gate[:, None].astype(x.dtype)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("ep",))
    in_specs = (P("ep"), P(), P("ep"), P("ep"))
    layer = jax.shard_map(moe, mesh=mesh, in_specs=in_specs, out_specs=P("ep"), check_vma=False)
    shapes = ((TOKENS, WIDTH), (WIDTH, EXPERTS), (EXPERTS, WIDTH, HIDDEN), (EXPERTS, HIDDEN, WIDTH))
    args = tuple(
        jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=NamedSharding(mesh, spec))
        for s, spec in zip(shapes, in_specs)
    )
    return jax.jit(layer, donate_argnums=0), args
