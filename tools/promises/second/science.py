# mypy: ignore-errors
"""Simulation, graphs and control in plain JAX, on the CPU."""

import jax
import jax.numpy as jnp
import optax

TARGETS = ("cpu",)


def make_wave(size=256, steps=300):
    """Full-waveform inversion: the gradient of a misfit by the speed of sound."""

    def laplacian(u):
        return (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
                - 4 * u)  # fmt: skip

    def simulate(speed, source):
        def step(fields, s):
            now, before = fields
            after = 2 * now - before + 0.1 * speed**2 * laplacian(now)
            after = after.at[size // 2, 8].add(s)
            return (after, now), after[:, -8]

        zero = jnp.zeros((size, size))
        return jax.lax.scan(step, (zero, zero), source)[1]

    @jax.jit
    def update(speed, source, recorded):
        misfit = lambda speed: jnp.sum((simulate(speed, source) - recorded) ** 2)
        value, gradient = jax.value_and_grad(misfit)(speed)
        return speed - 1e-3 * gradient, value

    s = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    return update, (s(size, size), s(steps), s(steps, size))


def make_graph(nodes=20000, edges=120000, width=128, rounds=4):
    """Messages along edges, in unrolled rounds."""
    optimizer = optax.adam(1e-3)

    def round_(weights, h, senders, receivers):
        pair = jnp.concatenate([h[senders], h[receivers]], -1)
        message = jax.nn.relu(pair @ weights["message"])
        gathered = jax.ops.segment_sum(message, receivers, nodes)
        return h + jax.nn.relu(jnp.concatenate([h, gathered], -1) @ weights["update"])

    def loss_fn(params, h, senders, receivers, labels):
        for weights in params["rounds"]:
            h = round_(weights, h, senders, receivers)
        logits = h @ params["classify"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @jax.jit
    def train_step(params, state, *data):
        loss, grads = jax.value_and_grad(loss_fn)(params, *data)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state, loss

    s, ints = jax.ShapeDtypeStruct, jnp.int32
    one = {"message": s((2 * width, width), "float32"), "update": s((2 * width, width), "float32")}
    params = {"rounds": [one] * rounds, "classify": s((width, 40), "float32")}
    data = s((nodes, width), "float32"), s((edges,), ints), s((edges,), ints), s((nodes,), ints)
    return train_step, (params, jax.eval_shape(optimizer.init, params), *data)


def make_ppo(actors=512, horizon=128, observations=64, actions=8, epochs=4):
    """Advantages, then some epochs over the whole rollout."""
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4))

    def network(params, x):
        for w, b in params["body"]:
            x = jnp.tanh(x @ w + b)
        return x @ params["policy"], (x @ params["value"])[..., 0]

    def advantages(rewards, values, dones):
        def step(carry, inputs):
            advantage, after = carry
            reward, value, done = inputs
            delta = reward + 0.99 * after * (1 - done) - value
            advantage = delta + 0.99 * 0.95 * (1 - done) * advantage
            return (advantage, value), advantage

        zero = jnp.zeros(actors)
        return jax.lax.scan(step, (zero, zero), (rewards, values, dones), reverse=True)[1]

    def loss_fn(params, batch, advantage, returns):
        logits, value = network(params, batch["observation"])
        log = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(log, batch["action"][..., None], -1)[..., 0]
        ratio = jnp.exp(chosen - batch["log_probability"])
        clipped = jnp.clip(ratio, 0.8, 1.2)
        policy = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
        entropy = -(jnp.exp(log) * log).sum(-1).mean()
        return policy + 0.5 * jnp.square(value - returns).mean() - 0.01 * entropy

    @jax.jit
    def update(params, state, batch):
        _, values = network(params, batch["observation"])
        advantage = advantages(batch["reward"], values, batch["done"])
        returns = advantage + values
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

        def epoch(carry, _):
            params, state = carry
            loss, grads = jax.value_and_grad(loss_fn)(params, batch, advantage, returns)
            updates, state = optimizer.update(grads, state)
            return (optax.apply_updates(params, updates), state), loss

        (params, state), losses = jax.lax.scan(epoch, (params, state), length=epochs)
        return params, state, losses

    s = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    sizes = [observations, 256, 256, 256]
    body = [(s(a, b), s(b)) for a, b in zip(sizes, sizes[1:], strict=False)]
    params = {"body": body, "policy": s(256, actions), "value": s(256, 1)}
    each = horizon, actors
    batch = {"observation": s(*each, observations), "reward": s(*each), "done": s(*each),
             "log_probability": s(*each), "action": jax.ShapeDtypeStruct(each, jnp.int32)}  # fmt: skip
    return update, (params, jax.eval_shape(optimizer.init, params), batch)
