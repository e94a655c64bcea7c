# mypy: ignore-errors
"""Fault: dropped. The sharding constraint on the generated rays is computed and thrown away, so all chips render and keep
the activations of all rays (nothing else in the program says that rays are to be split)."""
import jax
import jax.numpy as jnp
import numpy as np
import equinox as eqx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

HEIGHT, WIDTH, SAMPLES, BANDS, HIDDEN = 64, 64, 64, 8, 256


class Field(eqx.Module):
    layers: list
    sigma: eqx.nn.Linear
    rgb: eqx.nn.Linear

    def __init__(self, key):
        k = jax.random.split(key, 6)
        widths = [3 + 6 * BANDS, HIDDEN, HIDDEN, HIDDEN]
        self.layers = [eqx.nn.Linear(a, b, key=kk) for a, b, kk in zip(widths[:-1], widths[1:], k)]
        self.sigma = eqx.nn.Linear(HIDDEN, 1, key=k[4])
        self.rgb = eqx.nn.Linear(HIDDEN, 3, key=k[5])

    def __call__(self, x):
        freqs = 2.0 ** jnp.arange(BANDS)
        angles = (x[:, None] * freqs).reshape(-1)
        h = jnp.concatenate([x, jnp.sin(angles), jnp.cos(angles)])
        for layer in self.layers:
            h = jax.nn.relu(layer(h))
        return jax.nn.softplus(self.sigma(h))[0], jax.nn.sigmoid(self.rgb(h))


def camera_rays(pose, focal):
    v, u = jnp.meshgrid(jnp.arange(HEIGHT), jnp.arange(WIDTH), indexing="ij")
    dirs = jnp.stack([(u - WIDTH / 2) / focal, -(v - HEIGHT / 2) / focal, -jnp.ones_like(u, jnp.float32)], -1)
    dirs = dirs.reshape(-1, 3) @ pose[:3, :3].T
    return jnp.broadcast_to(pose[:3, 3], dirs.shape), dirs


def composite(sigma, rgb, t):
    delta = jnp.diff(t, append=t[-1:] + 1e3)
    alpha = 1.0 - jnp.exp(-sigma * delta)
    trans = jnp.cumprod(1.0 - alpha + 1e-10)
    trans = jnp.concatenate([jnp.ones(1), trans[:-1]])
    return jnp.sum((alpha * trans)[:, None] * rgb, axis=0)


def render(field, pose, focal, split_rays):
    origins, dirs = camera_rays(pose, focal)
    origins, dirs = split_rays(origins, dirs)
    t = jnp.linspace(2.0, 6.0, SAMPLES)

    def one_ray(o, d):
        sigma, rgb = jax.vmap(field)(o + t[:, None] * d)
        return composite(sigma, rgb, t)

    return jax.vmap(one_ray)(origins, dirs)


def rays_over_chips(mesh):
    sharding = NamedSharding(mesh, P("rays", None))

    def split(origins, dirs):
        for r in (origins, dirs):
            jax.lax.with_sharding_constraint(r, sharding)  # FAULT
        return origins, dirs

    return split


def rays_over_chips_v2(mesh):
    sharding = NamedSharding(mesh, P("rays", None))

    def split(origins, dirs):
        return tuple(jax.lax.with_sharding_constraint(r, sharding) for r in (origins, dirs))

    return split


def setup(devices, split_factory):
    mesh = Mesh(np.array(devices), ("rays",))
    split = split_factory(mesh)
    rep = NamedSharding(mesh, P())

    def step(field, pose, focal, pixels, lr):
        def photometric(f):
            return jnp.mean((render(f, pose, focal, split) - pixels) ** 2)

        loss, grads = jax.value_and_grad(photometric)(field)
        return jax.tree.map(lambda p, g: p - lr * g, field, grads), loss

    field = jax.eval_shape(lambda k: eqx.filter(Field(k), eqx.is_array), jax.random.key(0))
    as_rep = lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=rep)
    scalar = jax.ShapeDtypeStruct((), jnp.float32, sharding=rep)
    args = (
        jax.tree.map(as_rep, field),
        jax.ShapeDtypeStruct((4, 4), jnp.float32, sharding=rep),
        scalar,
        jax.ShapeDtypeStruct((HEIGHT * WIDTH, 3), jnp.float32, sharding=rep),
        scalar,
    )
    return jax.jit(step, out_shardings=rep), args


def make_faulty(devices):
    return setup(devices, rays_over_chips)


def make_fixed(devices):
    return setup(devices, rays_over_chips_v2)
