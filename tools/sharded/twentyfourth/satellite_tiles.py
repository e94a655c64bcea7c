# mypy: ignore-errors
"""Clean. Preparation of satellite images on the chips: radiometric calibration, augmentation, per-band statistics and
patches for a self-supervised model, everything split by image.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

CONFIG = {
    "images": 256,
    "side": 256,
    "bands": 12,
    "patch": 16,
    "noise": 0.02,
    "keep": 0.25,
}


def calibrate(raw, gain, offset):
    """Digital counts, (images, bands, side, side), to reflectances."""
    return raw.astype(jnp.float32) * gain[:, None, None] + offset[:, None, None]


def flip(images, key):
    """Each image is mirrored along either axis with probability one half."""
    across, down = jax.random.bernoulli(key, 0.5, (2, images.shape[0], 1, 1, 1))
    images = jnp.where(across, images[..., ::-1], images)
    return jnp.where(down, images[..., ::-1, :], images)


def jitter(images, key, amount):
    return images * (1 + amount * jax.random.normal(key, images.shape[:2]))[..., None, None]


def statistics(images):
    mean = images.mean(axis=(0, 2, 3))
    variance = jnp.mean((images - mean[:, None, None]) ** 2, axis=(0, 2, 3))
    return mean, variance


def to_patches(images, patch):
    n, bands, side, _ = images.shape
    grid = side // patch
    cut = images.reshape(n, bands, grid, patch, grid, patch).transpose(0, 2, 4, 1, 3, 5)
    return cut.reshape(n, grid * grid, bands * patch * patch)


def keep_some(patches, key, fraction):
    """A random subset of each image's patches, and which they are."""
    n, count, _ = patches.shape
    order = jnp.argsort(jax.random.uniform(key, (n, count)), axis=1)
    kept = order[:, : int(count * fraction)]
    return jnp.take_along_axis(patches, kept[..., None], axis=1), kept


def make_pipeline(config, mesh):
    by_image = NamedSharding(mesh, P(("host", "chip")))

    def pin(x):
        return jax.lax.with_sharding_constraint(x, by_image)

    def pipeline(raw, gain, offset, key):
        k_flip, k_jitter, k_keep = jax.random.split(key, 3)
        images = pin(calibrate(raw, gain, offset))
        images = pin(jitter(flip(images, k_flip), k_jitter, config["noise"]))
        mean, variance = statistics(images)
        images = (images - mean[:, None, None]) * jax.lax.rsqrt(variance + 1e-6)[:, None, None]
        patches = pin(to_patches(images.astype(jnp.bfloat16), config["patch"]))
        visible, kept = keep_some(patches, k_keep, config["keep"])
        return {"visible": pin(visible), "kept": pin(kept), "targets": patches, "mean": mean, "variance": variance}

    whole = NamedSharding(mesh, P())
    out = {"visible": by_image, "kept": by_image, "targets": by_image, "mean": whole, "variance": whole}
    return jax.jit(pipeline, out_shardings=out), by_image, whole


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(2, 2), ("host", "chip"))
    pipeline, by_image, whole = make_pipeline(CONFIG, mesh)
    shape = (CONFIG["images"], CONFIG["bands"], CONFIG["side"], CONFIG["side"])
    raw = jax.ShapeDtypeStruct(shape, jnp.uint16, sharding=by_image)
    table = jax.ShapeDtypeStruct((CONFIG["bands"],), jnp.float32, sharding=whole)
    key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype, sharding=whole)
    return pipeline, (raw, table, table, key)
