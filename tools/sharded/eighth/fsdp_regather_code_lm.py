# mypy: ignore-errors
"""Clean. FSDP with a checkpointed layer loop: every layer's weights are gathered when it runs and gathered again in the
backward pass, so that only one layer is whole at a time."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"

VOCAB, DIM, HEADS, LAYERS, SEQ, BATCH = 8192, 1024, 8, 6, 512, 16


class Block(nn.Module):
    gather: object

    @nn.compact
    def __call__(self, x, _):
        def weight(name, *shape):
            w = self.param(name, nn.initializers.lecun_normal(), shape)
            return self.gather(w.astype(x.dtype))

        b, t, d = x.shape
        y = nn.RMSNorm(name="norm_a", dtype=x.dtype)(x)
        q, k, v = jnp.split((y @ weight("qkv", d, 3 * d)).reshape(b, t, HEADS, -1), 3, axis=-1)
        a = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, d)
        x = x + a @ weight("proj", d, d)
        y = nn.RMSNorm(name="norm_b", dtype=x.dtype)(x)
        return x + nn.gelu(y @ weight("up", d, 4 * d)) @ weight("down", 4 * d, d), None


class CodeLM(nn.Module):
    gather: object

    @nn.compact
    def __call__(self, tokens):
        embed = self.param("embed", nn.initializers.normal(0.02), (VOCAB, DIM))
        table = self.gather(embed.astype(jnp.bfloat16))
        x = table[tokens]
        layers = nn.scan(
            nn.remat(Block, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=LAYERS,
        )
        x, _ = layers(self.gather, name="layers")(x, None)
        return (nn.RMSNorm(name="norm", dtype=x.dtype)(x) @ table.T).astype(jnp.float32)


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("fsdp"))
    model = CodeLM(gather=lambda w: jax.lax.with_sharding_constraint(w, whole))
    tx = optax.adamw(3e-4)

    def fsdp(a):
        """Matrices are split on the last dimension but one; scales are small and whole."""
        if a.ndim < 2 or a.shape[-2] < 128:
            return whole
        return NamedSharding(mesh, P(*(None,) * (a.ndim - 2), "fsdp", None))

    def init(key):
        params = model.init(key, jnp.zeros((4, SEQ), jnp.int32))["params"]
        return params, tx.init(params)

    abstract = jax.eval_shape(init, jax.random.key(0))
    shardings = jax.tree.map(fsdp, abstract)
    state = jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), abstract, shardings)

    def loss_fn(params, tokens):
        logits = model.apply({"params": params}, tokens)
        targets = jnp.roll(tokens, -1, axis=1)
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets)[:, :-1].mean()

    def step(state, tokens):
        params, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        grads = jax.lax.with_sharding_constraint(grads, shardings[0])
        updates, opt = tx.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    tokens = jax.ShapeDtypeStruct((BATCH, SEQ), jnp.int32, sharding=rows)
    return jax.jit(step, donate_argnums=0, out_shardings=(shardings, whole)), (state, tokens)
