# mypy: ignore-errors
"""Fault: stack. The scan of the rollouts stacks up the gathered states of all devices' samples, which the step
needs only for their centre, so every device holds the path of every sample.

Sampling-based model-predictive control (MPPI) of a legged robot with a learned residual dynamics network; the
states of all rollouts are kept for the terminal cost and the feasibility check.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

SAMPLES, HORIZON = 16_384, 32
STATE, CONTROL, HIDDEN = 36, 12, 128
TEMPERATURE, SIGMA, DT = 0.7, 0.3, 0.02


def network_shapes():
    return {
        "w1": (STATE + CONTROL, HIDDEN),
        "b1": (HIDDEN,),
        "w2": (HIDDEN, HIDDEN),
        "b2": (HIDDEN,),
        "w3": (HIDDEN, STATE),
    }


def dynamics(net, state, control):
    """Semi-implicit Euler on positions and velocities with a learned acceleration."""
    x = jnp.concatenate([state, control], axis=-1)
    h = jnp.tanh(x @ net["w1"] + net["b1"])
    h = jnp.tanh(h @ net["w2"] + net["b2"])
    position, velocity = jnp.split(state, 2, axis=-1)
    kick, drift = jnp.split(h @ net["w3"], 2, axis=-1)
    velocity = 0.99 * velocity + DT * kick
    return jnp.concatenate([position + DT * velocity + 0.1 * DT * drift, velocity], axis=-1)


class Planner:
    def __init__(self, devices):
        self.mesh = Mesh(np.asarray(devices), ("sample",))
        self.whole = NamedSharding(self.mesh, P())

    def pin(self, x, axis):
        """Split along the samples, which are the given dimension."""
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, P(*(None,) * axis, "sample")))

    def rollouts(self, net, start, controls):
        def local(net, start, controls):
            states = jnp.broadcast_to(start, (controls.shape[1], STATE))

            def tick(states, control):
                after = dynamics(net, states, control)
                everyone = jax.lax.all_gather(after, "sample", axis=0, tiled=True)
                after = after - 0.05 * jnp.median(everyone, axis=0) * (jnp.arange(STATE) >= STATE // 2)
                return after, everyone  # FAULT

            _, path = jax.lax.scan(tick, states, controls)
            return path

        split = P(None, "sample")
        run = jax.shard_map(
            local,
            mesh=self.mesh,
            in_specs=(P(), P(), split),
            out_specs=P(),  # FAULT
            check_vma=False,
        )
        return run(net, start, controls)

    def cost(self, path, controls, goal):
        away = jnp.sum(jnp.square(path - goal[:, None, :]), axis=-1)
        effort = 0.01 * jnp.sum(jnp.square(controls), axis=-1)
        fallen = jnp.any(path[..., 2] < -0.5, axis=0)
        terminal = 10.0 * jnp.sum(jnp.square(path[-1] - goal[-1]), axis=-1)
        return jnp.sum(away + effort, axis=0) + terminal + 1e4 * fallen

    def plan(self, net, key, start, mean, goal):
        noise = SIGMA * jax.random.normal(key, (HORIZON, SAMPLES, CONTROL))
        controls = self.pin(jnp.clip(mean[:, None, :] + noise, -1.0, 1.0), axis=1)
        path = self.rollouts(net, start, controls)
        cost = self.cost(path, controls, goal)
        weight = jax.nn.softmax(-(cost - cost.min()) / TEMPERATURE)
        mean = jnp.einsum("n,tnc->tc", weight, controls)
        spread = jnp.einsum("n,tns->ts", weight, jnp.square(path - goal[:, None, :]))
        return jnp.roll(mean, -1, axis=0), spread


def make_faulty(devices):
    planner = Planner(devices)

    def small(shape, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=planner.whole)

    net = {name: small(shape) for name, shape in network_shapes().items()}
    arguments = (
        net,
        small((2,), jnp.uint32),
        small((STATE,)),
        small((HORIZON, CONTROL)),
        small((HORIZON, STATE)),
    )
    return jax.jit(planner.plan, out_shardings=planner.whole), arguments
