"""One training step on four chips: parameters sharded, layers scanned and under jax.checkpoint."""

import compiling
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec

L, D, ROWS = 8, 2048, 64 * 512
config = compiling.options(__doc__, offload=False)
devices = compiling.chips() if config.platform == "tpu" else jax.devices()
mesh = Mesh(np.array(devices).reshape(4), ("d",))
policy = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[],
    names_which_can_be_offloaded=["h"],
    offload_src="device",
    offload_dst="pinned_host",
)


def layer(h, w):
    h = checkpoint_name(h, "h")
    y = jax.nn.gelu(h @ w["up"])
    return h + y @ w["down"], None


def loss_fn(params, x):
    f = jax.checkpoint(layer, policy=policy) if config.offload else jax.checkpoint(layer)
    h, _ = jax.lax.scan(f, x, params)
    return (h.astype(jnp.float32) ** 2).mean()


def train_step(params, x):
    loss, grads = jax.value_and_grad(loss_fn)(params, x)
    return jax.tree.map(lambda p, g: (p - 1e-3 * g).astype(p.dtype), params, grads), loss


def array(shape, *names):
    sharding = NamedSharding(mesh, PartitionSpec(*names))
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)


params = {"up": array((L, D, 4 * D), None, "d"), "down": array((L, 4 * D, D), None, "d")}
results = ({name: leaf.sharding for name, leaf in params.items()}, None)
step = jax.jit(train_step, donate_argnums=0, out_shardings=results)
compiling.compile_and_report(step.lower(params, array((ROWS, D), "d")), "train_step")
