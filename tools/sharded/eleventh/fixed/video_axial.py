# mypy: ignore-errors
"""Fixed."""
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

FRAMES, PIXELS, DIM, HEADS, DEPTH = 64, 256, 512, 4, 2
CLIPS = 8

BY_FRAME = P(None, "cp", None, None)  # clip, frame, pixel, channel
BY_PIXEL = P(None, None, "cp", None)


class ContextParallel:
    """Moves token arrays between the two layouts of axial attention."""

    def __init__(self, mesh):
        self.mesh = mesh

    def constrain(self, x, spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec))

    def switch(self, x, spec):
        return self.constrain(x, spec)


class AxialAttention(nnx.Module):
    def __init__(self, rngs):
        kw = dict(use_bias=False, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16, rngs=rngs)
        self.norm = nnx.RMSNorm(DIM, dtype=jnp.bfloat16, rngs=rngs)
        self.qkv = nnx.Linear(DIM, 3 * DIM, **kw)
        self.out = nnx.Linear(DIM, DIM, **kw)

    def __call__(self, x):
        """Attends along axis 2 of (clip, other, position, channel)."""
        qkv = self.qkv(self.norm(x)).reshape(*x.shape[:3], 3, HEADS, DIM // HEADS)
        q, k, v = (qkv[..., i, :, :] for i in range(3))
        s = jnp.einsum("boqhd,bokhd->bohqk", q, k) * (DIM // HEADS) ** -0.5
        y = jnp.einsum("bohqk,bokhd->boqhd", jax.nn.softmax(s, axis=-1), v)
        return x + self.out(y.reshape(x.shape))


class Mlp(nnx.Module):
    def __init__(self, rngs):
        kw = dict(use_bias=False, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16, rngs=rngs)
        self.norm = nnx.RMSNorm(DIM, dtype=jnp.bfloat16, rngs=rngs)
        self.up, self.down = nnx.Linear(DIM, 2 * DIM, **kw), nnx.Linear(2 * DIM, DIM, **kw)

    def __call__(self, x):
        return x + self.down(nnx.silu(self.up(self.norm(x))))


class VideoDenoiser(nnx.Module):
    def __init__(self, rngs):
        self.space = nnx.List([AxialAttention(rngs) for _ in range(DEPTH)])
        self.time = nnx.List([AxialAttention(rngs) for _ in range(DEPTH)])
        self.mlp = nnx.List([Mlp(rngs) for _ in range(DEPTH)])

    def __call__(self, x, cp):
        for space, time, mlp in zip(self.space, self.time, self.mlp):
            x = cp.constrain(space(x), BY_FRAME)
            x = cp.switch(x, BY_PIXEL)
            x = time(x.swapaxes(1, 2)).swapaxes(1, 2)
            x = cp.constrain(mlp(x), BY_PIXEL)
            x = cp.switch(x, BY_FRAME)
        return x


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("cp",))
    cp = ContextParallel(mesh)
    graph, weights = nnx.split(nnx.eval_shape(lambda: VideoDenoiser(nnx.Rngs(0))))

    def denoise_step(weights, x, sigma):
        eps = nnx.merge(graph, weights)(x, cp)
        return x - sigma * eps

    # 12 MB of weights: a copy on each device; the tokens are what is large
    copies = jax.tree.map(lambda _: NamedSharding(mesh, P()), weights)
    tokens = NamedSharding(mesh, BY_FRAME)
    fn = jax.jit(denoise_step, in_shardings=(copies, tokens, None), out_shardings=tokens, donate_argnums=1)
    video = jax.ShapeDtypeStruct((CLIPS, FRAMES, PIXELS, DIM), jnp.bfloat16)
    return fn, (weights, video, jax.ShapeDtypeStruct((), jnp.bfloat16))
