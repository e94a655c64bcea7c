# mypy: ignore-errors
"""Clean. Forward pass of an expert-parallel mixture-of-experts layer stack for serving: experts live on their chips, and
tokens travel to them by all-to-all inside shard_map.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

SETTINGS = dict(width=1024, hidden=4096, experts=32, layers=4, tokens=16384, capacity_factor=1.25)


def expert_ffn(w, x):
    """x is (local experts, slots, width)."""
    gate = jnp.einsum("esd,edf->esf", x, w["gate"])
    up = jnp.einsum("esd,edf->esf", x, w["up"])
    return jnp.einsum("esf,efd->esd", jax.nn.silu(gate) * up, w["down"])


def rms_norm(x):
    x32 = x.astype(jnp.float32)
    return (x32 * lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def route(x, router, capacity):
    """The expert of every token, its slot there, and its gate; tokens beyond the capacity are dropped."""
    probs = jax.nn.softmax((x @ router).astype(jnp.float32))
    expert = jnp.argmax(probs, axis=-1)
    gate = jnp.take_along_axis(probs, expert[:, None], axis=-1)
    onehot = jax.nn.one_hot(expert, router.shape[1], dtype=jnp.int32)
    slot = jnp.sum(jnp.cumsum(onehot, axis=0) * onehot, axis=-1) - 1
    kept = slot < capacity
    return expert, jnp.where(kept, slot, capacity), gate.astype(x.dtype) * kept[:, None].astype(x.dtype)


def moe_layer(x, w, *, capacity):
    """Inside shard_map: x holds this chip's tokens, w this chip's experts."""
    chips = lax.axis_size("chip")
    h = rms_norm(x)
    expert, slot, gate = route(h, w["router"], capacity)
    experts, width = w["router"].shape[1], x.shape[1]

    outbox = jnp.zeros((experts, capacity, width), x.dtype).at[expert, slot].set(h, mode="drop")
    outbox = outbox.reshape(chips, experts // chips, capacity, width)
    inbox = lax.all_to_all(outbox, "chip", split_axis=0, concat_axis=0)
    work = inbox.swapaxes(0, 1).reshape(experts // chips, chips * capacity, width)

    done = expert_ffn(w, work).reshape(experts // chips, chips, capacity, width).swapaxes(0, 1)
    returned = lax.all_to_all(done, "chip", split_axis=0, concat_axis=0).reshape(experts, capacity, width)
    return x + gate * returned.at[expert, slot].get(mode="fill", fill_value=0)


def make_clean(devices):
    s = SETTINGS
    mesh = Mesh(np.asarray(devices).reshape(16), ("chip",))
    per_chip = s["tokens"] // mesh.size
    capacity = int(s["capacity_factor"] * per_chip / s["experts"])

    expert_specs = {"router": P(), "gate": P("chip"), "up": P("chip"), "down": P("chip")}
    layer = jax.shard_map(
        functools.partial(moe_layer, capacity=capacity),
        mesh=mesh,
        in_specs=(P("chip"), expert_specs),
        out_specs=P("chip"),
    )

    def forward(weights, x):
        for w in weights:
            x = layer(x, w)
        return rms_norm(x)

    shapes = {
        "router": (s["width"], s["experts"]),
        "gate": (s["experts"], s["width"], s["hidden"]),
        "up": (s["experts"], s["width"], s["hidden"]),
        "down": (s["experts"], s["hidden"], s["width"]),
    }
    weights = [
        {
            name: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, expert_specs[name]))
            for name, shape in shapes.items()
        }
        for _ in range(s["layers"])
    ]
    x = jax.ShapeDtypeStruct((s["tokens"], s["width"]), jnp.bfloat16, sharding=NamedSharding(mesh, P("chip")))
    return jax.jit(forward, donate_argnums=1), (weights, x)
