# mypy: ignore-errors
"""Fault: gathered. The remat policy saves the values named "full_kernel", which are the gathered ZeRO-3 kernels: the scan
keeps one unsharded copy of every block's weights for the backward pass instead of gathering them again."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

DEPTH, WIDTH, MLP, HEADS = 8, 1024, 4096, 16
IMAGES, TOKENS, PATCH, CLASSES = 16, 256, 768, 1024

KERNELS = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "fc1": (WIDTH, MLP), "fc2": (MLP, WIDTH)}


def ungather(mesh):
    """Returns a function that materialises a kernel from its shards."""
    full = NamedSharding(mesh, P(None, None))

    def materialise(kernel):
        kernel = jax.lax.with_sharding_constraint(kernel.astype(jnp.bfloat16), full)
        return checkpoint_name(kernel, "full_kernel")

    return materialise


def layer_norm(x, scale):
    x32 = x.astype(jnp.float32)
    mu = x32.mean(-1, keepdims=True)
    var = x32.var(-1, keepdims=True)
    return ((x32 - mu) * jax.lax.rsqrt(var + 1e-6) * scale).astype(x.dtype)


def vit_block(x, p, materialise):
    b, n, d = x.shape
    h = layer_norm(x, p["ln1"])
    q, k, v = jnp.split((h @ materialise(p["qkv"])).reshape(b, n, 3 * HEADS, d // HEADS), 3, axis=2)
    a = jax.nn.dot_product_attention(q, k, v).reshape(b, n, d)
    x = x + checkpoint_name(a @ materialise(p["out"]), "attn_out")
    h = layer_norm(x, p["ln2"])
    h = jax.nn.gelu(h @ materialise(p["fc1"])) @ materialise(p["fc2"])
    return x + checkpoint_name(h, "mlp_out")


def classify(params, images, mesh, saved):
    materialise = ungather(mesh)
    rows = NamedSharding(mesh, P("zero", None, None))
    x = images.astype(jnp.bfloat16) @ materialise(params["patch"])
    x = x + params["pos"].astype(x.dtype)
    policy = jax.checkpoint_policies.save_only_these_names(*saved)

    def body(x, p):
        x = jax.lax.with_sharding_constraint(x, rows)
        return vit_block(x, p, materialise), None

    x, _ = jax.lax.scan(jax.checkpoint(body, policy=policy), x, params["blocks"])
    return (x.mean(1) @ materialise(params["head"])).astype(jnp.float32)


def assemble(devices, saved):
    mesh = Mesh(np.array(devices), ("zero",))
    tx = optax.lion(1e-4)

    def sds(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    blocks = {k: sds((DEPTH, *s), P(None, "zero", None)) for k, s in KERNELS.items()}
    blocks |= {n: sds((DEPTH, WIDTH), P()) for n in ("ln1", "ln2")}
    params = {
        "patch": sds((PATCH, WIDTH), P("zero", None)),
        "pos": sds((TOKENS, WIDTH), P()),
        "head": sds((WIDTH, CLASSES), P("zero", None)),
        "blocks": blocks,
    }
    opt = jax.eval_shape(tx.init, params)
    opt = optax.tree_map_params(
        tx,
        lambda s, p: sds(s.shape, p.sharding.spec, s.dtype),
        opt,
        params,
        transform_non_params=lambda s: sds(s.shape, P(), s.dtype),
    )

    def step(params, opt, images, labels):
        def objective(p):
            logits = classify(p, images, mesh, saved)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, g = jax.value_and_grad(objective)(params)
        u, opt = tx.update(g, opt, params)
        return optax.apply_updates(params, u), opt, loss

    where = lambda t: jax.tree.map(lambda s: s.sharding, t)
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(where(params), where(opt), NamedSharding(mesh, P())))
    images = sds((IMAGES, TOKENS, PATCH), P("zero"))
    labels = sds((IMAGES,), P("zero"), jnp.int32)
    return fn, (params, opt, images, labels)


def make_faulty(devices):
    return assemble(devices, saved=("attn_out", "mlp_out", "full_kernel"))  # FAULT


def make_fixed(devices):
    return assemble(devices, saved=("attn_out", "mlp_out"))
