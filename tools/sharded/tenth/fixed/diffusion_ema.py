# mypy: ignore-errors
"""Fixed."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


class Denoiser(eqx.Module):
    inp: jax.Array
    blocks: list
    out: jax.Array

    def __init__(self, data, width, depth, key):
        ks = jax.random.split(key, depth + 2)
        self.inp = jax.random.normal(ks[0], (data, width)) * 0.02
        self.blocks = [
            {
                "up": jax.random.normal(k, (width, 2 * width)) * 0.02,
                "down": jax.random.normal(k, (2 * width, width)) * 0.02,
                "time": jax.random.normal(k, (width,)),
            }
            for k in ks[1:-1]
        ]
        self.out = jnp.zeros((width, data))

    def __call__(self, x, t):
        h = x @ self.inp
        for block in self.blocks:
            h = h + jax.nn.silu((h + t[:, None] * block["time"]) @ block["up"]) @ block["down"]
        return h @ self.out


class TrainState(eqx.Module):
    model: Denoiser
    opt_state: optax.OptState
    ema: Denoiser
    step: jax.Array


class Trainer:
    def __init__(self, devices, decay=0.999):
        self.mesh = Mesh(np.array(devices), ("fsdp",))
        self.tx = optax.adam(1e-4)
        self.decay = decay

    def init(self, key):
        model = Denoiser(1024, 2048, 3, key)
        return TrainState(model, self.tx.init(model), model, jnp.zeros((), jnp.int32))

    def shard(self, leaf):
        return NamedSharding(self.mesh, P("fsdp") if leaf.ndim == 2 else P())

    def state_shardings(self, state):
        return TrainState(
            model=jax.tree.map(self.shard, state.model),
            opt_state=jax.tree.map(self.shard, state.opt_state),
            ema=jax.tree.map(self.shard, state.ema),
            step=NamedSharding(self.mesh, P()),
        )

    def update(self, state, x, noise, t):
        def loss_fn(model):
            noisy = jnp.sqrt(1 - t)[:, None] * x + jnp.sqrt(t)[:, None] * noise
            return jnp.mean((model(noisy, t) - noise) ** 2)

        loss, grads = jax.value_and_grad(loss_fn)(state.model)
        updates, opt_state = self.tx.update(grads, state.opt_state, state.model)
        model = eqx.apply_updates(state.model, updates)
        ema = optax.incremental_update(model, state.ema, 1 - self.decay)
        return TrainState(model, opt_state, ema, state.step + 1), loss


def make_fixed(devices):
    trainer = Trainer(devices)
    shapes = eqx.filter_eval_shape(trainer.init, jax.random.key(0))
    shardings = trainer.state_shardings(shapes)
    state = jax.tree.map(
        lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), shapes, shardings
    )
    batch = NamedSharding(trainer.mesh, P("fsdp"))
    x = jax.ShapeDtypeStruct((512, 1024), jnp.float32, sharding=batch)
    t = jax.ShapeDtypeStruct((512,), jnp.float32, sharding=batch)
    scalar = NamedSharding(trainer.mesh, P())
    fn = jax.jit(trainer.update, donate_argnums=0, out_shardings=(shardings, scalar))
    return fn, (state, x, x, t)
