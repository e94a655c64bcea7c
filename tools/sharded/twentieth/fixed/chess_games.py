# mypy: ignore-errors
"""Clean. The model runs over all 1024 moves of the games and the last position is left out of the loss, so that
the division along the moves comes out even.

Next-move model on whole chess games. Few long games per step, so the activations are divided along the moves
(sequence parallelism) and the parameters by their rows over the same four chips.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

MOVES, WIDTH, LAYERS, HEADS = 1968, 512, 6, 8
GAMES, PLIES = 8, 1024


def along(mesh, x, *axes):
    """Divides x by the given mesh axes, where its sizes allow it."""
    fits = [a if a is None or n % mesh.shape[a] == 0 else None for a, n in zip(axes, x.shape)]
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*fits)))


class Block(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, x, _):
        b, t, d = x.shape
        y = nn.LayerNorm(dtype=jnp.bfloat16, name="norm_1")(x)
        q = nn.DenseGeneral((HEADS, d // HEADS), use_bias=False, dtype=jnp.bfloat16, name="query")(y)
        k, v = (nn.Dense(d, use_bias=False, dtype=jnp.bfloat16, name=n)(y) for n in ("key", "value"))
        # keys and values are needed by all positions, queries stay where they are
        k, v = (along(self.mesh, a, None, None, None).reshape(q.shape) for a in (k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * (d // HEADS) ** -0.5
        before = jnp.arange(t)[:, None] >= jnp.arange(t)[None, :]
        weights = jax.nn.softmax(jnp.where(before, scores, -1e30)).astype(jnp.bfloat16)
        y = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, t, d)
        x = x + nn.Dense(d, use_bias=False, dtype=jnp.bfloat16, name="out")(y)
        y = nn.LayerNorm(dtype=jnp.bfloat16, name="norm_2")(x)
        y = nn.gelu(nn.Dense(4 * d, dtype=jnp.bfloat16, name="up")(y))
        x = x + nn.Dense(d, dtype=jnp.bfloat16, name="down")(y)
        return along(self.mesh, x, None, "seq", None), None


class MoveModel(nn.Module):
    mesh: Mesh

    @nn.compact
    def __call__(self, moves):
        place = self.param("ply", nn.initializers.normal(0.02), (PLIES, WIDTH))
        x = nn.Embed(MOVES, WIDTH, dtype=jnp.bfloat16, name="move")(moves)
        x = x + place[: moves.shape[1]].astype(x.dtype)
        x = along(self.mesh, x, None, "seq", None)
        stack = nn.scan(
            nn.remat(Block, prevent_cse=False),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=LAYERS,
        )
        x, _ = stack(self.mesh, name="blocks")(x, None)
        x = nn.LayerNorm(dtype=jnp.bfloat16, name="norm")(x)
        logits = nn.Dense(MOVES, use_bias=False, dtype=jnp.float32, name="policy")(x)
        return along(self.mesh, logits, None, "seq", None)


def loss_fn(params, model, games, lengths):
    inputs, targets = games, jnp.roll(games, -1, axis=1)
    counted = jnp.arange(1, games.shape[1] + 1)[None, :] < lengths[:, None]
    logits = model.apply({"params": params}, inputs)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return jnp.sum(losses * counted) / jnp.sum(counted)


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("seq",))
    model, tx = MoveModel(mesh), optax.adamw(3e-4)

    def step(params, opt_state, games, lengths):
        loss, grads = jax.value_and_grad(functools.partial(loss_fn, model=model))(
            params, games=games, lengths=lengths
        )
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    def rows(path, leaf):
        inner = leaf.shape[1:] if any("blocks" in str(k) for k in path) else leaf.shape
        spec = P(*(None,) * (leaf.ndim - len(inner)), "seq") if len(inner) > 1 else P()
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    games = jax.ShapeDtypeStruct((GAMES, PLIES), jnp.int32, sharding=NamedSharding(mesh, P()))
    lengths = jax.ShapeDtypeStruct((GAMES,), jnp.int32, sharding=NamedSharding(mesh, P()))
    params = jax.eval_shape(lambda g: model.init(jax.random.key(0), g)["params"], games)
    opt_state = jax.eval_shape(tx.init, params)
    params, opt_state = (jax.tree_util.tree_map_with_path(rows, tree) for tree in (params, opt_state))
    out = jax.tree.map(lambda s: s.sharding, (params, opt_state))
    fn = jax.jit(step, donate_argnums=(0, 1), out_shardings=(*out, NamedSharding(mesh, P())))
    return fn, (params, opt_state, games, lengths)
