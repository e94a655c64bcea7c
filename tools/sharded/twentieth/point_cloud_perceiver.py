# mypy: ignore-errors
"""Clean. Inference: only the votes, which are summed over several calls, are donated and go out as they came in,
divided by rooms and points. The thirteen classes and nine features do not divide; their logical axes
have no mesh axis.

Semantic segmentation of laser-scanned rooms with a Perceiver (Flax linen, logical axes): the points are read by
a few hundred latents, which think and are then asked about every point. Points are divided, latents are not.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding

TARGET = "tpu-v5e:4x4"

ROOMS, POINTS, FEATURES, CLASSES = 8, 32_768, 9, 13
LATENTS, WIDTH, HEADS, DEPTH = 512, 1024, 16, 12

RULES = (
    ("room", "room"),
    ("point", "model"),
    ("latent", None),
    ("feature", None),
    ("class", None),
    ("embed", None),
    ("heads", "model"),
    ("mlp", "model"),
    ("layer", None),
)


def dense(width, names, name):
    init = nn.with_logical_partitioning(nn.initializers.lecun_normal(), names)
    return nn.Dense(width, use_bias=False, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16, kernel_init=init, name=name)


def heads(x):
    return x.reshape(*x.shape[:-1], HEADS, -1)


class Think(nn.Module):
    """Self-attention and a perceptron on the latents, tensor parallel by heads and hidden units."""

    @nn.compact
    def __call__(self, z, _):
        y = nn.RMSNorm(dtype=jnp.bfloat16, name="norm_attention")(z)
        q, k, v = (heads(dense(WIDTH, ("embed", "heads"), n)(y)) for n in ("query", "key", "value"))
        y = jax.nn.dot_product_attention(q, k, v).reshape(z.shape)
        z = z + dense(WIDTH, ("heads", "embed"), "out")(y)
        y = nn.RMSNorm(dtype=jnp.bfloat16, name="norm_mlp")(z)
        y = nn.gelu(dense(4 * WIDTH, ("embed", "mlp"), "up")(y))
        z = z + dense(WIDTH, ("mlp", "embed"), "down")(y)
        return nn.with_logical_constraint(z, ("room", "latent", "embed")), None


class Perceiver(nn.Module):
    @nn.compact
    def __call__(self, clouds):
        x = nn.gelu(dense(256, ("feature", "embed"), "lift")(clouds))
        x = nn.with_logical_constraint(x, ("room", "point", "embed"))
        latents = self.param(
            "latents",
            nn.with_logical_partitioning(nn.initializers.normal(0.02), ("latent", "embed")),
            (LATENTS, WIDTH),
            jnp.bfloat16,
        )
        z = jnp.broadcast_to(latents, (clouds.shape[0], LATENTS, WIDTH))
        # every chip reads its own points; the softmax's sums run over the chips
        q = heads(dense(256, ("embed", None), "read_query")(z))
        k = heads(dense(256, ("embed", None), "read_key")(x))
        v = heads(dense(256, ("embed", None), "read_value")(x))
        scores = jnp.einsum("blhd,bphd->bhlp", q, k).astype(jnp.float32) / 4.0
        scores = nn.with_logical_constraint(scores, ("room", None, "latent", "point"))
        y = jnp.einsum("bhlp,bphd->blhd", jax.nn.softmax(scores).astype(jnp.bfloat16), v)
        z = z + dense(WIDTH, (None, "embed"), "read_out")(y.reshape(*y.shape[:2], -1))
        z = nn.with_logical_constraint(z, ("room", "latent", "embed"))
        stack = nn.scan(
            Think,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=DEPTH,
            metadata_params={nn.PARTITION_NAME: "layer"},
        )
        z, _ = stack(name="think")(z, None)
        q = heads(dense(256, ("embed", None), "ask_query")(x))
        k, v = (heads(dense(256, ("embed", None), n)(z)) for n in ("ask_key", "ask_value"))
        y = jax.nn.dot_product_attention(q, k, v).reshape(x.shape)
        x = nn.with_logical_constraint(x + y, ("room", "point", "embed"))
        logits = dense(CLASSES, ("embed", "class"), "classes")(x)
        return nn.with_logical_constraint(logits, ("room", "point", "class"))


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("room", "model"))
    model = Perceiver()

    def place(*names):
        return NamedSharding(mesh, nn.logical_to_mesh_axes(names, RULES))

    def predict(params, clouds, votes):
        with mesh, nn.logical_axis_rules(RULES):
            logits = model.apply({"params": params}, clouds).astype(jnp.float32)
        return votes + jax.nn.softmax(logits)  # summed over rotated copies of the rooms

    clouds = jax.ShapeDtypeStruct(
        (ROOMS, POINTS, FEATURES), jnp.bfloat16, sharding=place("room", "point", "feature")
    )
    votes = jax.ShapeDtypeStruct((ROOMS, POINTS, CLASSES), jnp.float32, sharding=place("room", "point", "class"))
    boxed = jax.eval_shape(model.init, jax.random.key(0), clouds)["params"]
    shardings = nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)
    params = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), nn.unbox(boxed), shardings
    )
    return jax.jit(predict, donate_argnums=2), (params, clouds, votes)
