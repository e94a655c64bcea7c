# mypy: ignore-errors
"""Fault: gathered. Each block all-gathers its FSDP weights inside the scan and nothing is rematerialized, so the
whole weights of every layer are kept for the backward pass."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class DiTConfig:
    width: int = 1024
    depth: int = 8
    heads: int = 16
    patches: int = 64
    latent: int = 64
    batch: int = 32
    remat: bool = True


def gather(w, axis=0):
    """FSDP: the whole weight for this layer, in the compute type."""
    return jax.lax.all_gather(w.astype(jnp.bfloat16), "fsdp", axis=axis, tiled=True)  # FAULT


def ln(x):
    x32 = x.astype(jnp.float32)
    mu = x32.mean(-1, keepdims=True)
    return ((x32 - mu) * jax.lax.rsqrt(x32.var(-1, keepdims=True) + 1e-6)).astype(x.dtype)


def modulate(x, shift, scale):
    return x * (1 + scale[:, None]) + shift[:, None]


def dit_block(cfg, cond, x, p):
    mod = jax.nn.silu(cond) @ gather(p["ada"])
    s1, c1, g1, s2, c2, g2 = jnp.split(mod, 6, axis=-1)
    h = modulate(ln(x), s1, c1)
    b, n, d = h.shape
    q, k, v = jnp.split((h @ gather(p["qkv"])).reshape(b, n, 3 * cfg.heads, d // cfg.heads), 3, axis=2)
    att = jax.nn.softmax(jnp.einsum("bqhc,bkhc->bhqk", q, k) * (d // cfg.heads) ** -0.5, axis=-1)
    ctx = jnp.einsum("bhqk,bkhc->bqhc", att, v).reshape(b, n, d)
    x = x + g1[:, None] * (ctx @ gather(p["proj"]))
    h = modulate(ln(x), s2, c2)
    x = x + g2[:, None] * (jax.nn.gelu(h @ gather(p["up"])) @ gather(p["down"]))
    return x, None


def timestep_features(t, dim):
    freqs = jnp.exp(-np.log(10000.0) * jnp.arange(dim // 2) / (dim // 2))
    ang = t[:, None] * freqs[None]
    return jnp.concatenate([jnp.cos(ang), jnp.sin(ang)], axis=-1).astype(jnp.bfloat16)


def local_loss(cfg, params, latents, noise, t):
    alpha = jnp.cos(0.5 * np.pi * t)[:, None, None]
    sigma = jnp.sin(0.5 * np.pi * t)[:, None, None]
    noisy = (alpha * latents + sigma * noise).astype(jnp.bfloat16)
    x = noisy @ params["patch_in"].astype(jnp.bfloat16)
    cond = timestep_features(1000.0 * t, cfg.width)
    body = functools.partial(dit_block, cfg, cond)
    if cfg.remat:
        body = jax.checkpoint(body)
    x, _ = jax.lax.scan(body, x, params["blocks"])  # FAULT
    pred = ln(x) @ params["patch_out"].astype(jnp.bfloat16)
    return jnp.mean(jnp.square(pred.astype(jnp.float32) - noise))


def make_step(cfg, mesh, specs):
    data = P("fsdp")

    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=(specs, data, data, data), out_specs=(specs, P()), check_vma=False
    )
    def step(params, latents, noise, t):
        loss, grads = jax.value_and_grad(functools.partial(local_loss, cfg))(params, latents, noise, t)
        for name in ("patch_in", "patch_out"):
            grads[name] = jax.lax.psum(grads[name], "fsdp")
        params = jax.tree.map(lambda p, g: p - 1e-4 * g / jax.lax.axis_size("fsdp"), params, grads)
        return params, jax.lax.pmean(loss, "fsdp")

    return jax.jit(step, donate_argnums=(0,))


def build(cfg, devices):
    mesh = Mesh(np.array(devices), ("fsdp",))
    d, n = cfg.width, cfg.depth
    shapes = {"ada": (n, d, 6 * d), "qkv": (n, d, 3 * d), "proj": (n, d, d), "up": (n, d, 4 * d), "down": (n, 4 * d, d)}
    specs = {"blocks": {k: P(None, "fsdp", None) for k in shapes}, "patch_in": P(), "patch_out": P()}
    shapes = {"blocks": shapes, "patch_in": (cfg.latent, d), "patch_out": (d, cfg.latent)}
    params = jax.tree.map(
        lambda sp, sh: jax.ShapeDtypeStruct(sh, jnp.float32, sharding=NamedSharding(mesh, sp)), specs, shapes
    )
    rows = NamedSharding(mesh, P("fsdp"))
    lat = jax.ShapeDtypeStruct((cfg.batch, cfg.patches, cfg.latent), jnp.float32, sharding=rows)
    t = jax.ShapeDtypeStruct((cfg.batch,), jnp.float32, sharding=rows)
    return make_step(cfg, mesh, specs), (params, lat, lat, t)


def make_faulty(devices):
    return build(DiTConfig(remat=False), devices)  # FAULT


def make_fixed(devices):
    return build(DiTConfig(), devices)
