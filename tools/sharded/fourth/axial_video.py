# mypy: ignore-errors
"""Fault: reshard. The temporal attention asks for its tokens split over another mesh axis on another dimension than
the spatial attention leaves them in, so the compiler goes through full replication at each switch."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

FRAMES, SPACE, DIM, HEADS = 64, 128, 256, 2
CLIPS, LAYERS, CLASSES = 2, 2, 400


class Layout:
    """Where the tokens [clip, frame, space, dim] live in each kind of layer."""

    def __init__(self, mesh, spatial, temporal):
        self.mesh, self.spatial, self.temporal = mesh, spatial, temporal

    def to_spatial(self, x):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, self.spatial))  # FAULT

    def to_temporal(self, x):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, self.temporal))  # FAULT

    def on_heads(self, x, spec):
        """[clip, frame, space, head, dim]: positions as the tokens, heads as the weights give them."""
        full = P(*spec, P.UNCONSTRAINED, P.UNCONSTRAINED)
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, full))


def layer_norm(x, p):
    mu = x.mean(-1, keepdims=True)
    return (x - mu) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6) * p["g"] + p["b"]


def attention(p, x, place, eq_scores, eq_out):
    def heads(w):
        y = x @ w
        return place(y.reshape(*y.shape[:-1], HEADS, DIM // HEADS))

    q, k, v = heads(p["q"]), heads(p["k"]), heads(p["v"])
    probs = jax.nn.softmax(jnp.einsum(eq_scores, q, k) * (DIM // HEADS) ** -0.5, axis=-1)
    y = place(jnp.einsum(eq_out, probs, v))
    return y.reshape(x.shape) @ p["o"]


spatial_attention = functools.partial(attention, eq_scores="btqhd,btkhd->bthqk", eq_out="bthqk,btkhd->btqhd")
temporal_attention = functools.partial(attention, eq_scores="bqshd,bkshd->bshqk", eq_out="bshqk,bkshd->bqshd")


def mlp(p, x):
    return jax.nn.gelu(x @ p["up"]) @ p["down"]


def encoder_layer(layout, p, x):
    x = layout.to_spatial(x)  # FAULT
    in_space = functools.partial(layout.on_heads, spec=layout.spatial)
    x = x + spatial_attention(p["space"], layer_norm(x, p["ln1"]), in_space)
    x = layout.to_temporal(x)  # FAULT
    in_time = functools.partial(layout.on_heads, spec=layout.temporal)
    x = x + temporal_attention(p["time"], layer_norm(x, p["ln2"]), in_time)
    return x + mlp(p["mlp"], layer_norm(x, p["ln3"]))


def logits_fn(layout, params, video):
    x = video @ params["patch"] + params["pos_t"][:, None] + params["pos_s"][None]
    for p in params["layers"]:
        x = jax.checkpoint(functools.partial(encoder_layer, layout))(p, x)
    return layer_norm(x, params["ln"]).mean(axis=(1, 2)) @ params["head"]


def loss_fn(layout, params, video, label):
    logp = jax.nn.log_softmax(logits_fn(layout, params, video))
    return -jnp.mean(jnp.take_along_axis(logp, label[:, None], axis=1))


def structs(mesh, video_spec):
    def w(*shape, spec=P()):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    column, row = P(None, "model"), P("model", None)
    att = {**{n: w(DIM, DIM, spec=column) for n in "qkv"}, "o": w(DIM, DIM, spec=row)}
    ln = {"g": w(DIM), "b": w(DIM)}
    layer = {"space": att, "time": att, "ln1": ln, "ln2": ln, "ln3": ln,
             "mlp": {"up": w(DIM, 2 * DIM, spec=column), "down": w(2 * DIM, DIM, spec=row)}}
    params = {"patch": w(192, DIM), "pos_t": w(FRAMES, DIM), "pos_s": w(SPACE, DIM), "ln": ln,
              "head": w(DIM, CLASSES), "layers": [layer] * LAYERS}
    video = jax.ShapeDtypeStruct((CLIPS, FRAMES, SPACE, 192), jnp.float32, sharding=NamedSharding(mesh, video_spec))
    label = jax.ShapeDtypeStruct((CLIPS,), jnp.int32, sharding=NamedSharding(mesh, P()))
    return params, video, label


def build(devices, spatial, temporal):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("seq", "model"))
    layout = Layout(mesh, spatial, temporal)

    def step(params, video, label):
        loss, grads = jax.value_and_grad(functools.partial(loss_fn, layout))(params, video, label)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), loss

    return jax.jit(step, donate_argnums=(0,)), structs(mesh, spatial)


def make_faulty(devices):
    return build(devices, spatial=P(None, "seq", None), temporal=P(None, None, "model"))  # FAULT


def make_fixed(devices):
    return build(devices, spatial=P(None, "seq", None), temporal=P(None, None, "seq"))
