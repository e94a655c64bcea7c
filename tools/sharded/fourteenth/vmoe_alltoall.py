# mypy: ignore-errors
"""Clean. Vision mixture of experts (mixer tokens): one expert per chip, tokens exchanged by all-to-all, router and token mixing
whole on every chip, the rest divided."""
import dataclasses
import functools
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class Args:
    layers: int = 6
    dim: int = 768
    hidden: int = 3072
    patches: int = 256
    patch_dim: int = 16 * 16 * 3
    mix: int = 256
    images: int = 128
    classes: int = 1024
    slack: float = 1.25


def specs_and_shapes(a, chips):
    L, D = a.layers, a.dim
    return {
        "patch": ((a.patch_dim, D), P()),
        "head": ((D, a.classes), P()),
        "layers": {
            "mix_in": ((L, a.patches, a.mix), P()),
            "mix_out": ((L, a.mix, a.patches), P()),
            "router": ((L, D, chips), P()),
            "expert_in": ((L, chips, D, a.hidden), P(None, "ep")),
            "expert_out": ((L, chips, a.hidden, D), P(None, "ep")),
        },
    }


def norm(x):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def experts(a, chips, p, x):
    """Switch routing of this chip's tokens, `cap` to each expert."""
    tokens = x.reshape(-1, a.dim)
    cap = int(a.slack * tokens.shape[0] / chips)
    gates = jax.nn.softmax((tokens @ p["router"].astype(x.dtype)).astype(jnp.float32))
    gate, choice = gates.max(-1), gates.argmax(-1)
    onehot = jax.nn.one_hot(choice, chips, dtype=jnp.int32)
    place = jnp.take_along_axis(jnp.cumsum(onehot, 0) - 1, choice[:, None], 1)[:, 0]
    boxes = jnp.zeros((chips, cap, a.dim), x.dtype).at[choice, place].set(tokens, mode="drop")
    mine = lax.all_to_all(boxes, "ep", 0, 0, tiled=True)  # from every chip, for this expert
    h = jax.nn.gelu(mine.reshape(-1, a.dim) @ p["expert_in"][0].astype(x.dtype)) @ p["expert_out"][0].astype(x.dtype)
    back = lax.all_to_all(h.reshape(boxes.shape), "ep", 0, 0, tiled=True)
    out = back.at[choice, place].get(mode="fill", fill_value=0) * gate[:, None].astype(x.dtype)
    balance = chips * jnp.sum(lax.pmean(onehot.mean(0, dtype=jnp.float32), "ep") * lax.pmean(gates.mean(0), "ep"))
    return out.reshape(x.shape), balance


def loss_fn(a, chips, params, images, labels):
    x = images.astype(jnp.bfloat16) @ params["patch"].astype(jnp.bfloat16)

    @jax.checkpoint
    def layer(x, p):
        mixed = jax.nn.gelu(jnp.einsum("bpd,pm->bmd", norm(x), p["mix_in"].astype(x.dtype)))
        x = x + jnp.einsum("bmd,mp->bpd", mixed, p["mix_out"].astype(x.dtype))
        y, balance = experts(a, chips, p, norm(x))
        return x + y, balance

    x, balance = lax.scan(layer, x, params["layers"])
    logits = norm(x).mean(1).astype(jnp.float32) @ params["head"]
    task = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return lax.pmean(task, "ep") + 0.01 * balance.mean()


def make_clean(devices):
    a, chips = Args(), len(devices)
    mesh = Mesh(np.array(devices), ("ep",))
    table = specs_and_shapes(a, chips)
    is_leaf = lambda t: isinstance(t, tuple)
    specs = jax.tree.map(lambda t: t[1], table, is_leaf=is_leaf)
    array = lambda shape, spec, dtype: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
    params = jax.tree.map(lambda t: array(*t, jnp.float32), table, is_leaf=is_leaf)
    tx = optax.adam(1e-3)
    opt = jax.eval_shape(tx.init, params)
    opt_specs = optax.tree_map_params(tx, lambda _, s: s, opt, specs, transform_non_params=lambda _: P())
    opt = jax.tree.map(lambda o, s: array(o.shape, s, o.dtype), opt, opt_specs)

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(specs, opt_specs, P("ep"), P("ep")), out_specs=(specs, opt_specs, P()))
    def step(params, opt, images, labels):
        loss, grads = jax.value_and_grad(functools.partial(loss_fn, a, chips))(params, images, labels)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    images = array((a.images, a.patches, a.patch_dim), P("ep"), jnp.float32)
    labels = array((a.images,), P("ep"), jnp.int32)
    return jax.jit(step, donate_argnums=(0, 1)), (params, opt, images, labels)
