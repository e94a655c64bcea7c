# mypy: ignore-errors
"""Fault: optimizer. Optimizer state is matched to its parameter by shape and dtype; the first
moment is kept in bfloat16, so it matches none and stays whole on every device."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

OBS, ACT, HIDDEN = 512, 64, 2560
BATCH = 2048
CLIP, ENTROPY = 0.2, 1e-3


class Trunk(eqx.Module):
    wide: jax.Array
    narrow: jax.Array
    bias: jax.Array

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.wide = jax.random.normal(a, (HIDDEN, 2 * HIDDEN)) * HIDDEN**-0.5
        self.narrow = jax.random.normal(b, (2 * HIDDEN, HIDDEN)) * HIDDEN**-0.5
        self.bias = jnp.zeros((HIDDEN,))

    def __call__(self, h):
        return h + jax.nn.swish(h @ self.wide) @ self.narrow + self.bias


class ActorCritic(eqx.Module):
    stem: jax.Array
    trunk: Trunk
    policy: jax.Array
    value: jax.Array
    log_std: jax.Array

    def __init__(self, key):
        k = jax.random.split(key, 4)
        self.stem = jax.random.normal(k[0], (OBS, HIDDEN)) * OBS**-0.5
        self.trunk = Trunk(k[1])
        self.policy = jax.random.normal(k[2], (HIDDEN, ACT)) * 0.01
        self.value = jax.random.normal(k[3], (HIDDEN,)) * 0.01
        self.log_std = jnp.zeros((ACT,))

    def __call__(self, obs):
        h = self.trunk(jnp.tanh(obs @ self.stem))
        return h @ self.policy, h @ self.value


def ppo_loss(net, batch):
    mean, value = net(batch["obs"])
    std = jnp.exp(net.log_std)
    logp = (-0.5 * ((batch["action"] - mean) / std) ** 2 - net.log_std).sum(-1)
    ratio = jnp.exp(logp - batch["logp"])
    adv = batch["advantage"]
    surrogate = jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * adv)
    critic = 0.5 * (value - batch["return"]) ** 2
    return (critic - surrogate).mean() - ENTROPY * net.log_std.sum()


def param_specs(net):
    """Tensor parallel: the wide layer by columns, the narrow one by rows."""
    specs = jax.tree.map(lambda _: P(), net)
    where = lambda n: (n.stem, n.trunk.wide, n.trunk.narrow, n.policy)
    return eqx.tree_at(
        where, specs, (P(None, "tp"), P(None, "tp"), P("tp", None), P("tp", None)),
        is_leaf=lambda s: isinstance(s, P),
    )


def optimizer_specs(opt_state, net, specs):
    """Give each moment the spec of the parameter it belongs to."""
    leaves = jax.tree.leaves(net)
    flat = jax.tree.leaves(specs, is_leaf=lambda s: isinstance(s, P))
    table = {(p.shape, p.dtype): s for p, s in zip(leaves, flat)}  # FAULT
    return jax.tree.map(lambda m: table.get((m.shape, m.dtype), P()), opt_state)  # FAULT


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(1, 8), ("envs", "tp"))
    tx = optax.adamw(3e-4, mu_dtype=jnp.bfloat16)
    net = eqx.filter_eval_shape(ActorCritic, jax.random.key(0))
    opt_state = jax.eval_shape(tx.init, net)
    specs = param_specs(net)

    def named(tree):
        return jax.tree.map(
            lambda s: NamedSharding(mesh, s), tree, is_leaf=lambda s: isinstance(s, P)
        )

    net_sh = named(specs)
    opt_sh = named(optimizer_specs(opt_state, net, specs))
    by_env = NamedSharding(mesh, P("envs"))

    def update(net, opt_state, batch):
        loss, grads = jax.value_and_grad(ppo_loss)(net, batch)
        updates, opt_state = tx.update(grads, opt_state, net)
        return eqx.apply_updates(net, updates), opt_state, loss

    batch = {n: jax.ShapeDtypeStruct((BATCH,), jnp.float32) for n in ("logp", "advantage", "return")}
    batch["obs"] = jax.ShapeDtypeStruct((BATCH, OBS), jnp.float32)
    batch["action"] = jax.ShapeDtypeStruct((BATCH, ACT), jnp.float32)
    fn = jax.jit(
        update,
        in_shardings=(net_sh, opt_sh, by_env),
        out_shardings=(net_sh, opt_sh, NamedSharding(mesh, P())),
        donate_argnums=(0, 1),
    )
    return fn, (net, opt_state, batch)
