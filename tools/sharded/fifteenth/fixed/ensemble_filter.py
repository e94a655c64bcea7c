# mypy: ignore-errors
"""Fixed."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
MEMBERS, STATE, OBS, CYCLES = 96, 131072, 320, 4


class Forecast(NamedTuple):
    """Everything that an assimilation window reads."""
    ensemble: jax.Array      # members x state
    damping: jax.Array       # state
    operator: jax.Array      # observations x state
    taper: jax.Array         # observations x state
    noise: jax.Array         # observations


LAYOUT = Forecast(
    ensemble=P(None, "grid"),
    damping=P("grid"),
    operator=P(None, "grid"),
    taper=P(None, "grid"),
    noise=P(),
)


def advance(x, damping):
    """A Lorenz-96 like step on the flattened grid."""
    ahead, behind, far = jnp.roll(x, -1, -1), jnp.roll(x, 1, -1), jnp.roll(x, 2, -1)
    return x + 0.01 * ((ahead - far) * behind - damping * x + 8.0)


def analyse(f, y, key):
    x = f.ensemble
    anomalies = (x - x.mean(0)) / np.sqrt(MEMBERS - 1)
    predicted = jnp.einsum("ms,os->mo", x, f.operator)
    spread = (predicted - predicted.mean(0)) / np.sqrt(MEMBERS - 1)
    covariance = spread.T @ spread + jnp.diag(f.noise)
    drawn = y + jnp.sqrt(f.noise) * jax.random.normal(key, (MEMBERS, OBS))
    weights = jnp.linalg.solve(covariance, (drawn - predicted).T)
    cross = jnp.einsum("mo,ms->os", spread, anomalies) * f.taper
    return f._replace(ensemble=x + jnp.einsum("om,os->ms", weights, cross))


def window(f, observations, key):
    def cycle(x, inputs):
        y, k = inputs
        x = jax.lax.fori_loop(0, 5, lambda _, e: advance(e, f.damping), x)
        new = analyse(f._replace(ensemble=x), y, k).ensemble
        return new, (new.mean(), new.std())

    x, stats = jax.lax.scan(cycle, f.ensemble, (observations, jax.random.split(key, CYCLES)))
    return x, stats


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("grid",))
    shapes = Forecast((MEMBERS, STATE), (STATE,), (OBS, STATE), (OBS, STATE), (OBS,))
    args = Forecast(*(jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, p)) for s, p in zip(shapes, LAYOUT)))
    whole = NamedSharding(mesh, P())
    run = jax.jit(window, out_shardings=(args.ensemble.sharding, whole))
    observations = jax.ShapeDtypeStruct((CYCLES, OBS), jnp.float32, sharding=whole)
    key = jax.eval_shape(lambda: jax.random.key(0))
    return run, (args, observations, key)
