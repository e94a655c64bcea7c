# mypy: ignore-errors
"""Fixed."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

WIDTH, MLP, DEPTH, HEADS, PATCHES, PATCH_DIM, EMBED = 1024, 4096, 2, 8, 128, 768, 512
BATCH = 32

RULES = (
    (r"blocks/\d+/(q|k|v|fc1)/kernel", P(None, "fsdp")),
    (r"blocks/\d+/(out|fc2)/kernel", P("fsdp", None)),
    (r"(patches|text|head)/kernel", P("fsdp", None)),
    (r"positions", P(None, "fsdp")),
)


class Block(nnx.Module):
    def __init__(self, rngs):
        self.q, self.k, self.v, self.out = (
            nnx.Linear(WIDTH, WIDTH, dtype=jnp.bfloat16, rngs=rngs) for _ in range(4)
        )
        self.fc1 = nnx.Linear(WIDTH, MLP, dtype=jnp.bfloat16, rngs=rngs)
        self.fc2 = nnx.Linear(MLP, WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.ln1 = nnx.LayerNorm(WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.ln2 = nnx.LayerNorm(WIDTH, dtype=jnp.bfloat16, rngs=rngs)

    def __call__(self, x):
        def heads(t):
            return t.reshape(*t.shape[:-1], HEADS, WIDTH // HEADS)

        h = self.ln1(x)
        a = nnx.dot_product_attention(heads(self.q(h)), heads(self.k(h)), heads(self.v(h)))
        x = x + self.out(a.reshape(x.shape))
        return x + self.fc2(nnx.gelu(self.fc1(self.ln2(x))))


class TwoTower(nnx.Module):
    def __init__(self, rngs):
        self.patches = nnx.Linear(PATCH_DIM, WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.positions = nnx.Param(nnx.initializers.normal(0.02)(rngs.params(), (PATCHES, WIDTH)))
        self.blocks = nnx.List([Block(rngs) for _ in range(DEPTH)])
        self.head = nnx.Linear(WIDTH, EMBED, dtype=jnp.bfloat16, rngs=rngs)
        self.text = nnx.Linear(WIDTH, EMBED, dtype=jnp.bfloat16, rngs=rngs)

    def __call__(self, patches, text):
        x = self.patches(patches) + self.positions[...]
        for block in self.blocks:
            x = nnx.remat(Block.__call__)(block, x)
        img, txt = self.head(x.mean(1)), self.text(text)
        return img / jnp.linalg.norm(img, axis=-1, keepdims=True), txt


def shardings_by_name(tree, mesh):
    def pick(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        for pattern, spec in RULES:
            if re.search(pattern, name):
                return NamedSharding(mesh, spec)
        return NamedSharding(mesh, P())

    return jax.tree_util.tree_map_with_path(pick, tree)


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(8), ("fsdp",))
    graphdef, state = nnx.split(nnx.eval_shape(lambda: TwoTower(nnx.Rngs(0))), nnx.Param)
    params = nnx.to_pure_dict(state)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, weight_decay=1e-4))
    opt_state = jax.eval_shape(tx.init, params)

    def train_step(params, opt_state, batch):
        def loss_fn(params):
            full = jax.tree.map(lambda s: s, state)
            nnx.replace_by_pure_dict(full, params)
            img, txt = nnx.merge(graphdef, full)(batch["patches"], batch["text"])
            labels = jnp.arange(img.shape[0])
            sims = 10.0 * img @ txt.T
            return optax.softmax_cross_entropy_with_integer_labels(sims, labels).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    p_shard = shardings_by_name(params, mesh)
    o_shard = shardings_by_name(opt_state, mesh)
    by_row = NamedSharding(mesh, P("fsdp"))
    batch = {
        "patches": jax.ShapeDtypeStruct((BATCH, PATCHES, PATCH_DIM), jnp.bfloat16),
        "text": jax.ShapeDtypeStruct((BATCH, WIDTH), jnp.bfloat16),
    }
    fn = jax.jit(
        train_step,
        in_shardings=(p_shard, o_shard, by_row),
        out_shardings=(p_shard, o_shard, NamedSharding(mesh, P())),
        donate_argnums=(0, 1),
    )
    return fn, (params, opt_state, batch)
