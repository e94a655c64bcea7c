# mypy: ignore-errors
"""Clean. Data-parallel GPT with ZeRO-1: weights whole on every device, Adam's moments and the update divided."""
import dataclasses
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class GPT:
    vocab: int = 16384
    width: int = 512
    depth: int = 6
    heads: int = 8
    context: int = 256
    batch: int = 32

    def shapes(self):
        d, n = self.width, self.depth
        return {
            "wte": (self.vocab, d), "wpe": (self.context, d), "ln_f": (d,),
            "h": {"ln_1": (n, d), "qkv": (n, d, 3 * d), "proj": (n, d, d), "ln_2": (n, d), "up": (n, d, 4 * d), "down": (n, 4 * d, d)},
        }

    def logits(self, params, tokens, constrain):
        x = constrain(params["wte"][tokens] + params["wpe"])
        b, t, d = x.shape

        @jax.checkpoint
        def block(x, w):
            h = norm(x) * w["ln_1"]
            q, k, v = jnp.split((h @ w["qkv"]).reshape(b, t, self.heads, -1), 3, -1)
            x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, d) @ w["proj"]
            x = x + jax.nn.gelu((norm(x) * w["ln_2"]) @ w["up"]) @ w["down"]
            return constrain(x), None

        x, _ = jax.lax.scan(block, x, params["h"])
        return (norm(x) * params["ln_f"]) @ params["wte"].T


def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)


def zero1_spec(shape, n):
    """The first dimension that n devices divide."""
    for i, size in enumerate(shape):
        if size % n == 0:
            return P(*[None] * i, "dp")
    return P()


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("dp",))
    gpt = GPT()
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("dp"))
    is_shape = lambda s: isinstance(s, tuple)
    params = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.float32), gpt.shapes(), is_leaf=is_shape)
    divided = jax.tree.map(lambda p: NamedSharding(mesh, zero1_spec(p.shape, mesh.size)), params)
    tx = optax.adamw(6e-4, b2=0.95, weight_decay=0.1)
    opt = jax.eval_shape(tx.init, params)
    opt_shardings = optax.tree_map_params(tx, lambda _, s: s, opt, divided, transform_non_params=lambda _: whole)
    constrain = lambda x: jax.lax.with_sharding_constraint(x, rows)

    def train_step(params, opt, tokens):
        def loss_fn(p):
            logits = gpt.logits(p, tokens[:, :-1], constrain)
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        grads = jax.lax.with_sharding_constraint(grads, divided)
        mine = jax.lax.with_sharding_constraint(params, divided)
        updates, opt = tx.update(grads, opt, mine)
        return optax.apply_updates(mine, updates), opt, loss

    whole_tree = jax.tree.map(lambda _: whole, params)
    fn = jax.jit(train_step, in_shardings=(whole_tree, opt_shardings, rows),
                 out_shardings=(whole_tree, opt_shardings, whole), donate_argnums=(0, 1))
    return fn, (params, opt, jax.ShapeDtypeStruct((gpt.batch, gpt.context + 1), jnp.int32))
