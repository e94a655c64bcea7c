# mypy: ignore-errors
"""Clean. The spectral weights, with their gradients and moments, are divided by modes over the sixteen chips.

Fourier neural operator for Darcy flow: permeability field in, pressure field out. Equinox modules; the layout
of the parameters is a second model that has specs for leaves.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

GRID, MODES, CHANNELS, LAYERS, BATCH = 128, 16, 64, 4, 128


class Spectral(eqx.Module):
    """Mixes the channels mode by mode; the weights are pairs of real and imaginary parts."""

    real: jax.Array  # layers, modes along y and x, channels in, channels out
    imag: jax.Array


class Operator(eqx.Module):
    lift: jax.Array
    spectral: Spectral
    local: jax.Array
    bias: jax.Array
    hidden: jax.Array
    out: jax.Array

    @classmethod
    def create(cls, key):
        k = jax.random.split(key, 6)
        c, n = CHANNELS, LAYERS
        modes = (n, 2 * MODES, MODES, c, c)
        return cls(
            lift=jax.random.normal(k[0], (3, c)) * 0.5,
            spectral=Spectral(jax.random.normal(k[1], modes) / c, jax.random.normal(k[2], modes) / c),
            local=jax.random.normal(k[3], (n, c, c)) * c**-0.5,
            bias=jnp.zeros((n, c)),
            hidden=jax.random.normal(k[4], (c, 4 * c)) * c**-0.5,
            out=jax.random.normal(k[5], (4 * c, 1)) * 0.05,
        )

    @classmethod
    def layout(cls):
        return cls(
            lift=P(),
            spectral=Spectral(real=P(None, "chips"), imag=P(None, "chips")),
            local=P(),
            bias=P(),
            hidden=P(),
            out=P(),
        )


def bases():
    """The Fourier modes that are kept, as matrices: both signs along y, the positive ones along x."""
    at = np.arange(GRID)
    ky = np.concatenate([np.arange(MODES), np.arange(-MODES, 0)])
    ey = np.exp(-2j * np.pi * np.outer(ky, at) / GRID) / np.sqrt(GRID)
    ex = np.exp(-2j * np.pi * np.outer(np.arange(MODES), at) / GRID) / np.sqrt(GRID)
    return [jnp.asarray(m, jnp.float32) for m in (ey.real, ey.imag, ex.real, ex.imag)]


def spectral_mix(x, real, imag, pin):
    yr, yi, xr, xi = bases()
    a, b = (jnp.einsum("bhwc,mw->bhmc", x, m) for m in (xr, xi))
    fr = jnp.einsum("bhmc,nh->bnmc", a, yr) - jnp.einsum("bhmc,nh->bnmc", b, yi)
    fi = jnp.einsum("bhmc,nh->bnmc", a, yi) + jnp.einsum("bhmc,nh->bnmc", b, yr)
    # the modes are mixed where their weights are: modes divided by the chips, fields whole along the batch
    fr, fi = (pin(f, P(None, "chips")) for f in (fr, fi))
    gr = jnp.einsum("bnmc,nmcd->bnmd", fr, real) - jnp.einsum("bnmc,nmcd->bnmd", fi, imag)
    gi = jnp.einsum("bnmc,nmcd->bnmd", fr, imag) + jnp.einsum("bnmc,nmcd->bnmd", fi, real)
    gr, gi = (pin(g, P("chips")) for g in (gr, gi))
    hr = jnp.einsum("bnmd,nh->bhmd", gr, yr) + jnp.einsum("bnmd,nh->bhmd", gi, yi)
    hi = jnp.einsum("bnmd,nh->bhmd", gi, yr) - jnp.einsum("bnmd,nh->bhmd", gr, yi)
    return 2.0 * (jnp.einsum("bhmd,mw->bhwd", hr, xr) + jnp.einsum("bhmd,mw->bhwd", hi, xi))


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("chips",))
    tx = optax.adamw(optax.cosine_decay_schedule(1e-3, 50_000), weight_decay=1e-4)

    def pin(x, spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

    def forward(model, permeability):
        line = jnp.broadcast_to(jnp.linspace(0, 1, GRID), (permeability.shape[0], GRID, GRID))
        x = jnp.stack([permeability, line, jnp.swapaxes(line, 1, 2)], axis=-1) @ model.lift

        @jax.checkpoint
        def layer(x, w):
            spectral, local, bias = w
            y = spectral_mix(x, spectral.real, spectral.imag, pin)
            return pin(jax.nn.gelu(y + x @ local + bias), P("chips")), None

        x, _ = jax.lax.scan(layer, pin(x, P("chips")), (model.spectral, model.local, model.bias))
        return (jax.nn.gelu(x @ model.hidden) @ model.out)[..., 0]

    def relative_error(model, permeability, pressure):
        difference = forward(model, permeability) - pressure
        norm = jnp.sqrt(jnp.sum(pressure**2, axis=(1, 2)))
        return jnp.mean(jnp.sqrt(jnp.sum(difference**2, axis=(1, 2))) / norm)

    def step(model, opt_state, permeability, pressure):
        error, grads = eqx.filter_value_and_grad(relative_error)(model, permeability, pressure)
        updates, opt_state = tx.update(grads, opt_state, model)
        return eqx.apply_updates(model, updates), opt_state, error

    model = eqx.filter_eval_shape(Operator.create, jax.random.key(0))
    shardings = jax.tree.map(lambda spec: NamedSharding(mesh, spec), Operator.layout())
    state_shardings = optax.tree_map_params(
        tx, lambda _, s: s, jax.eval_shape(tx.init, model), shardings,
        transform_non_params=lambda _: NamedSharding(mesh, P()),
    )  # fmt: skip
    fields = jax.ShapeDtypeStruct((BATCH, GRID, GRID), jnp.float32, sharding=NamedSharding(mesh, P("chips")))
    with_place = lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)  # noqa: E731
    opt_state = jax.tree.map(with_place, jax.eval_shape(tx.init, model), state_shardings)
    model = jax.tree.map(with_place, model, shardings)
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(shardings, state_shardings, None))
    return fn, (model, opt_state, fields, fields)
