# mypy: ignore-errors
"""Fault: gathered. The layers are rematerialised under a policy that saves everything but the named hidden activation, so the weights that all_gather returns are saved for the backward pass as well: every device ends up with the full weights of all layers."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

AXIS = "zero"
DEPTH, WIDTH, HIDDEN, FEATURES = 6, 1024, 3072, 256
BATCH = 512

REMAT_POLICY = jax.checkpoint_policies.save_anything_except_these_names("hidden")  # FAULT


def unshard(w, axis):
    return jax.lax.all_gather(w, AXIS, axis=axis, tiled=True)


def residual_block(x, block):
    up = unshard(block["up"], 0)
    down = unshard(block["down"], 1)
    hidden = checkpoint_name(jax.nn.relu(x @ up), "hidden")
    return x + 0.1 * (hidden @ down)


def local_loss(params, features, target):
    x = features @ params["embed"]
    block_fn = jax.checkpoint(residual_block, policy=REMAT_POLICY, prevent_cse=False)  # FAULT

    def body(x, block):
        return block_fn(x, block), None

    x, _ = jax.lax.scan(body, x, params["blocks"])
    prediction = (x @ params["readout"])[:, 0]
    return jnp.mean((prediction - target) ** 2)


def local_step(params, features, target):
    loss, grads = jax.value_and_grad(local_loss)(params, features, target)
    count = jax.lax.axis_size(AXIS)
    grads["blocks"] = jax.tree.map(lambda g: g / count, grads["blocks"])
    for name in ("embed", "readout"):
        grads[name] = jax.lax.pmean(grads[name], AXIS)
    params = jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads)
    return params, jax.lax.pmean(loss, AXIS)


PARAM_SPECS = {
    "embed": P(),
    "blocks": {"up": P(None, AXIS), "down": P(None, None, AXIS)},
    "readout": P(),
}

PARAM_SHAPES = {
    "embed": (FEATURES, WIDTH),
    "blocks": {"up": (DEPTH, WIDTH, HIDDEN), "down": (DEPTH, HIDDEN, WIDTH)},
    "readout": (WIDTH, 1),
}


def make_faulty(devices):
    mesh = Mesh(np.array(devices), (AXIS,))
    step = jax.shard_map(
        local_step,
        mesh=mesh,
        in_specs=(PARAM_SPECS, P(AXIS), P(AXIS)),
        out_specs=(PARAM_SPECS, P()),
        check_vma=False,
    )
    params = jax.tree.map(
        lambda spec, shape: jax.ShapeDtypeStruct(
            shape, jnp.float32, sharding=NamedSharding(mesh, spec)
        ),
        PARAM_SPECS,
        PARAM_SHAPES,
        is_leaf=lambda x: isinstance(x, P),
    )
    split = NamedSharding(mesh, P(AXIS))
    features = jax.ShapeDtypeStruct((BATCH, FEATURES), jnp.float32, sharding=split)
    target = jax.ShapeDtypeStruct((BATCH,), jnp.float32, sharding=split)
    return jax.jit(step, donate_argnums=0), (params, features, target)
