# mypy: ignore-errors
"""Fault: optimizer. The rules are matched from the beginning of a path, and the paths of Adam's moments begin with "0/mu/" and
"0/nu/": no rule matches them, so that both moments are whole on every chip while the weights are divided."""
import re
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

RULES = [
    (r"patch/kernel", P(None, None, None, "fsdp")),
    (r"pos", P(None, None, "fsdp")),
    (r"blocks/attn/(query|key|value)/kernel", P(None, "fsdp", None, None)),
    (r"blocks/attn/out/kernel", P(None, None, None, "fsdp")),
    (r"blocks/(fc1|fc2)/kernel", P(None, "fsdp", None)),
    (r"head/kernel", P("fsdp", None)),
]


def spec_for(path, leaf):
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    for pattern, spec in RULES:
        if re.match(pattern, name):  # FAULT
            return spec
    return P()


def shardings_for(tree, mesh):
    return jax.tree_util.tree_map_with_path(lambda p, x: NamedSharding(mesh, spec_for(p, x)), tree)


class Block(nnx.Module):
    def __init__(self, dim, heads, rngs):
        self.norm1 = nnx.LayerNorm(dim, rngs=rngs, dtype=jnp.bfloat16)
        self.attn = nnx.MultiHeadAttention(heads, dim, decode=False, rngs=rngs, dtype=jnp.bfloat16)
        self.norm2 = nnx.LayerNorm(dim, rngs=rngs, dtype=jnp.bfloat16)
        self.fc1 = nnx.Linear(dim, 4 * dim, rngs=rngs, dtype=jnp.bfloat16)
        self.fc2 = nnx.Linear(4 * dim, dim, rngs=rngs, dtype=jnp.bfloat16)

    def __call__(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(nnx.gelu(self.fc1(self.norm2(x))))


class ViT(nnx.Module):
    def __init__(self, *, size=256, patch=16, dim=1024, depth=4, heads=8, classes=1000, rngs):
        self.patch = nnx.Conv(3, dim, (patch, patch), (patch, patch), rngs=rngs, dtype=jnp.bfloat16)
        self.pos = nnx.Param(jnp.zeros((1, (size // patch) ** 2, dim)))
        make = nnx.split_rngs(splits=depth)(nnx.vmap(lambda r: Block(dim, heads, r)))
        self.blocks = make(rngs)
        self.norm = nnx.LayerNorm(dim, rngs=rngs)
        self.head = nnx.Linear(dim, classes, rngs=rngs)

    def __call__(self, images):
        x = self.patch(images)
        x = x.reshape(x.shape[0], -1, x.shape[-1]) + self.pos[...].astype(x.dtype)
        run = nnx.remat(lambda x, block: block(x))
        x = nnx.scan(run, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.blocks)
        return self.head(self.norm(x.mean(1).astype(jnp.float32)))


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    batch_sharding = NamedSharding(mesh, P("fsdp"))
    graphdef, state = nnx.split(nnx.eval_shape(lambda: ViT(rngs=nnx.Rngs(0))), nnx.Param, ...)[:2]
    params = nnx.to_pure_dict(state)
    schedule = optax.cosine_decay_schedule(1e-3, 100_000)
    tx = optax.chain(optax.scale_by_adam(b2=0.95), optax.add_decayed_weights(0.05), optax.scale_by_learning_rate(schedule))
    opt_state = jax.eval_shape(tx.init, params)
    param_shardings = shardings_for(params, mesh)
    opt_shardings = shardings_for(opt_state, mesh)  # FAULT

    def loss_fn(params, images, labels):
        logits = nnx.merge(graphdef, params)(images.astype(jnp.bfloat16))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def train_step(params, opt_state, images, labels):
        loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
        grads = jax.lax.with_sharding_constraint(grads, param_shardings)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    fn = jax.jit(
        train_step,
        in_shardings=(param_shardings, opt_shardings, batch_sharding, batch_sharding),
        out_shardings=(param_shardings, opt_shardings, None),
        donate_argnums=(0, 1),
    )
    images = jax.ShapeDtypeStruct((32, 256, 256, 3), jnp.float32)
    labels = jax.ShapeDtypeStruct((32,), jnp.int32)
    return fn, (params, opt_state, images, labels)
