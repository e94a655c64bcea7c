"""One training step of a small GPT: flax.linen, optax.adamw."""

import compiling
import jax
import jax.numpy as jnp
import optax
from mymodel.gpt import GPT

HEADS = 8
config = compiling.options(
    __doc__,
    donate=False,
    remat=False,
    upcast=False,
    dtype="float32",
    batch=8,
    layers=4,
    d=512,
    seq=256,
    vocab=32000,
)
model = GPT(config.vocab, config.d, HEADS, config.layers, jnp.dtype(config.dtype), config.remat)
tx = optax.adamw(1e-3)


def loss_fn(params, tokens):
    logits = model.apply({"params": params}, tokens[:, :-1])
    if config.upcast:
        logits = jax.nn.log_softmax(logits.astype(jnp.float32))
        onehot = jax.nn.one_hot(tokens[:, 1:], logits.shape[-1])
        return -(onehot * logits).sum(-1).mean()
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def train_step(params, opt_state, tokens):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
    updates, opt_state = tx.update(grads, opt_state, params)
    params = optax.apply_updates(params, updates)
    return params, opt_state, loss


sharding = compiling.single(config.platform)
sample = jax.ShapeDtypeStruct((config.batch, config.seq), jnp.int32)
tokens = jax.ShapeDtypeStruct((config.batch, config.seq + 1), jnp.int32, sharding=sharding)
params = jax.eval_shape(model.init, jax.random.key(0), sample)["params"]
state = compiling.placed((params, jax.eval_shape(tx.init, params)), sharding)
step = jax.jit(train_step, donate_argnums=(0, 1) if config.donate else ())
compiling.compile_and_report(step.lower(*state, tokens), "train_step")
