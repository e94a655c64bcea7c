# mypy: ignore-errors
"""Fault: stack. The spec of the latents stacked by the scan names the time dimension only, so the states
of all episodes are whole on every device although the episodes themselves are split."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


class State(NamedTuple):
    deter: jax.Array
    logits: jax.Array
    stoch: jax.Array


class Hyper(NamedTuple):
    batch: int = 256
    time: int = 64
    obs: int = 256
    act: int = 8
    deter: int = 512
    groups: int = 16
    classes: int = 16
    hidden: int = 256

    @property
    def stoch(self):
        return self.groups * self.classes


def shapes(h):
    return {
        "encoder": (h.obs, h.hidden),
        "inp": (h.stoch + h.act, h.hidden),
        "gru": (h.hidden + h.deter, 3 * h.deter),
        "prior": (h.deter, h.stoch),
        "post": (h.deter + h.hidden, h.stoch),
        "decoder1": (h.deter + h.stoch, h.hidden),
        "decoder2": (h.hidden, h.obs),
        "reward": (h.deter + h.stoch, 1),
    }


class RSSM:
    latent_spec = P(None)  # time is never split  # FAULT

    def __init__(self, mesh, hyper):
        self.mesh, self.h = mesh, hyper

    def pin(self, tree):
        sharding = NamedSharding(self.mesh, self.latent_spec)
        return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, sharding), tree)  # FAULT

    def gru(self, p, x, deter):
        reset, cand, update = jnp.split(jnp.concatenate([x, deter], -1) @ p["gru"], 3, -1)
        cand = jnp.tanh(jax.nn.sigmoid(reset) * cand)
        update = jax.nn.sigmoid(update - 1)
        return update * cand + (1 - update) * deter

    def sample(self, logits):
        logits = logits.reshape(*logits.shape[:-1], self.h.groups, self.h.classes)
        probs = 0.99 * jax.nn.softmax(logits) + 0.01 / self.h.classes
        hard = jax.nn.one_hot(jnp.argmax(probs, -1), self.h.classes)
        return (probs + jax.lax.stop_gradient(hard - probs)).reshape(*logits.shape[:-2], -1)

    def observe(self, p, embed, action, first):
        def step(state, inputs):
            emb, act, first = inputs
            state = jax.tree.map(lambda s: s * (1 - first)[:, None], state)
            x = jax.nn.silu(jnp.concatenate([state.stoch, act], -1) @ p["inp"])
            deter = self.gru(p, x, state.deter)
            logits = jnp.concatenate([deter, emb], -1) @ p["post"]
            state = State(deter, logits, self.sample(logits))
            return state, state

        b = embed.shape[1]
        zero = State(*(jnp.zeros((b, n)) for n in (self.h.deter, self.h.stoch, self.h.stoch)))
        _, states = jax.lax.scan(step, zero, (embed, action, first))
        return self.pin(states)  # FAULT

    def loss(self, p, data):
        swap = lambda x: jnp.swapaxes(x, 0, 1)  # noqa: E731
        obs, action, first, reward = (swap(data[k]) for k in ("obs", "action", "first", "reward"))
        embed = jax.nn.silu(obs @ p["encoder"])
        states = self.observe(p, embed, action, first)
        feat = jnp.concatenate([states.deter, states.stoch], -1)
        recon = jax.nn.silu(feat @ p["decoder1"]) @ p["decoder2"]
        prior = jax.nn.log_softmax((states.deter @ p["prior"]).reshape(*feat.shape[:2], self.h.groups, -1))
        post = jax.nn.log_softmax(states.logits.reshape(prior.shape))
        kl = jnp.maximum(1.0, jnp.sum(jnp.exp(post) * (post - prior), (-1, -2)))
        rew = jnp.square((feat @ p["reward"])[..., 0] - reward)
        return jnp.mean(jnp.sum(jnp.square(recon - obs), -1) + rew + kl)


class SplitRSSM(RSSM):
    latent_spec = P(None, "data")


def build(devices, cls, h=Hyper()):
    mesh = Mesh(np.array(devices), ("data",))
    model, opt = cls(mesh, h), optax.adam(3e-4)
    rep, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))

    def update(params, opt_state, data):
        loss, grads = jax.value_and_grad(model.loss)(params, data)
        updates, opt_state = opt.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    params = {k: jax.ShapeDtypeStruct(s, jnp.float32) for k, s in shapes(h).items()}
    tails = dict(obs=(h.obs,), action=(h.act,), first=(), reward=())
    data = {k: jax.ShapeDtypeStruct((h.batch, h.time, *s), jnp.float32) for k, s in tails.items()}
    fn = jax.jit(update, in_shardings=(rep, rep, rows), out_shardings=rep, donate_argnums=(0, 1))
    return fn, (params, jax.eval_shape(opt.init, params), data)


def make_faulty(devices):
    return build(devices, RSSM)


def make_fixed(devices):
    return build(devices, SplitRSSM)
