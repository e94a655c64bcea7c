# mypy: ignore-errors
"""Fault: reshard. Between row-wise and column-wise attention the pair representation is made
whole on every device, and each device then takes its columns out of the whole."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

RESIDUES, PAIR, HEADS, BLOCKS = 384, 64, 2, 3

ROWS = P("res", None, None)
COLUMNS = P(None, "res", None)


def relayout(*specs):
    """Decorator: the function's result goes through these layouts, in this order."""

    def wrap(f):
        def wrapped(*args):
            out = f(*args)
            for spec in specs:
                out = jax.lax.with_sharding_constraint(out, spec)
            return out

        return wrapped

    return wrap


def layer_norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)


def attend_one(line, w):
    """Attention along one row (or one column) of the pair representation."""
    q, k, v = jnp.einsum("ic,schd->sihd", line, w["qkv"])
    scores = jnp.einsum("ihd,jhd->hij", q, k) * q.shape[-1] ** -0.5
    mixed = jnp.einsum("hij,jhd->ihd", jax.nn.softmax(scores), v)
    gate = jax.nn.sigmoid(jnp.einsum("ic,chd->ihd", line, w["gate"]))
    return jnp.einsum("ihd,hdc->ic", mixed * gate, w["out"])


def few_at_a_time(f, lines):
    """Maps over the lines of each device in turn: a device holds one line's scores at a time."""
    n = lines.shape[0]
    groups = lines.reshape(8, n // 8, *lines.shape[1:]).swapaxes(0, 1)
    _, out = jax.lax.scan(lambda c, group: (c, jax.vmap(f)(group)), None, groups)
    return out.swapaxes(0, 1).reshape(lines.shape)


@relayout(P(), COLUMNS)  # FAULT
def starting_node(pair, w):
    return pair + few_at_a_time(lambda line: attend_one(line, w), layer_norm(pair))


@relayout(ROWS)
def ending_node(pair, w):
    columns = layer_norm(pair).swapaxes(0, 1)
    return pair + few_at_a_time(lambda line: attend_one(line, w), columns).swapaxes(0, 1)


@relayout(ROWS)
def transition(pair, w):
    return pair + jax.nn.relu(layer_norm(pair) @ w["up"]) @ w["down"]


def fold(params, pair, distances):
    def block(pair, w):
        pair = starting_node(pair, w["starting"])
        pair = ending_node(pair, w["ending"])
        return transition(pair, w["transition"]), None

    bins = jnp.clip((distances * 2).astype(jnp.int32), 0, params["bins"].shape[0] - 1)
    pair = pair + params["bins"][bins]
    pair, _ = jax.lax.scan(block, pair, params["blocks"])
    return pair


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(8), ("res",))
    small = NamedSharding(mesh, P())

    def weight(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=small)

    def attention():
        head = PAIR // HEADS
        return {
            "qkv": weight(BLOCKS, 3, PAIR, HEADS, head),
            "gate": weight(BLOCKS, PAIR, HEADS, head),
            "out": weight(BLOCKS, HEADS, head, PAIR),
        }

    blocks = {
        "starting": attention(),
        "ending": attention(),
        "transition": {"up": weight(BLOCKS, PAIR, 2 * PAIR), "down": weight(BLOCKS, 2 * PAIR, PAIR)},
    }
    params = {"blocks": blocks, "bins": weight(64, PAIR)}
    rows = NamedSharding(mesh, ROWS)
    pair = jax.ShapeDtypeStruct((RESIDUES, RESIDUES, PAIR), jnp.float32, sharding=rows)
    distances = jax.ShapeDtypeStruct(
        (RESIDUES, RESIDUES), jnp.float32, sharding=NamedSharding(mesh, P("res", None))
    )

    def predict(params, pair, distances):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return fold(params, pair, distances)

    return jax.jit(predict, donate_argnums=1, out_shardings=rows), (params, pair, distances)
