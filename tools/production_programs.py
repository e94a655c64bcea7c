"""Programs as they run in production on TPUs, to be compiled for chips with sparse cores.

Training and serving steps with real shapes: large tables of embeddings, experts, graphs, caches of
keys and values, states kept in the host's memory; and their like partitioned over all devices of a
host. They were written to measure rules that had been made before them (docs/history.md, "First
contact"), so no rule may be read off them without saying so. `program` is a factory for
`hlomem compile`; every function below makes what jit is to be given.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
lax: Any = import_module("jax.lax")
sharding: Any = import_module("jax.sharding")
P: Any = sharding.PartitionSpec


class Made(NamedTuple):
    """A function, the shapes of its arguments, and which of them it is given for good."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    donated: tuple[int, ...] = ()
    results: Any = None
    """Shardings of the results, where they are not left to XLA."""


def _floats(*dimensions: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(dimensions, dtype)


def _halves(*dimensions: int) -> Any:
    return _floats(*dimensions, dtype="bfloat16")


def _numbers(*dimensions: int) -> Any:
    return _floats(*dimensions, dtype="int32")


def _down(gradients: Any, parameters: Any, rate: float = 0.1) -> Any:
    return jax.tree.map(lambda p, g: (p - rate * g).astype(p.dtype), parameters, gradients)


def _adam(gradients: Any, state: Any) -> Any:
    """One step of Adam; the state is parameters and both moments."""
    parameters, first, second = state
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradients)

    def moved(p: Any, m: Any, v: Any) -> Any:
        return (p - 1e-3 * m / (jnp.sqrt(v) + 1e-8)).astype(p.dtype)

    return jax.tree.map(moved, parameters, first, second), first, second


def _normed(x: Any) -> Any:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def _attention(x: Any, w: Any, heads: int) -> Any:
    q, k, v = (
        part.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for part in jnp.split(x @ w, 3, -1)
    )
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    mixed = jax.nn.softmax(jnp.where(seen, scores, -1e9), -1) @ v
    return mixed.swapaxes(1, 2).reshape(x.shape)


def _block(x: Any, layer: Any, heads: int = 8) -> Any:
    x = x + _attention(_normed(x), layer["qkv"], heads) @ layer["out"]
    return x + jax.nn.gelu(_normed(x) @ layer["up"]) @ layer["down"]


def _layers(count: int, width: int, dtype: str = "float32") -> Any:
    return {
        "qkv": _floats(count, width, 3 * width, dtype=dtype),
        "out": _floats(count, width, width, dtype=dtype),
        "up": _floats(count, width, 4 * width, dtype=dtype),
        "down": _floats(count, 4 * width, width, dtype=dtype),
    }


def _cross_entropy(logits: Any, labels: Any) -> Any:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -chosen.mean()


def _language_loss(ps: Any, tokens: Any, labels: Any, policy: Any = None) -> Any:
    block = jax.checkpoint(lambda x, layer: (_block(x, layer), None), policy=policy)
    x, _ = lax.scan(block, ps["embed"][tokens], ps["layers"])
    return _cross_entropy(_normed(x) @ ps["embed"].T, labels)


def _language(count: int, width: int, words: int, dtype: str = "float32") -> Any:
    return {"embed": _floats(words, width, dtype=dtype), "layers": _layers(count, width, dtype)}


# One device, real shapes.


def gpt_adam(_: Any) -> Made:
    """A language model of twelve layers, recomputed, with Adam and donated state."""

    def step(state: Any, tokens: Any, labels: Any) -> Any:
        return _adam(jax.grad(_language_loss)(state[0], tokens, labels), state)

    model = _language(12, 768, 32768)
    return Made(step, ((model, model, model), _numbers(8, 512), _numbers(8, 512)), (0,))


def gpt_mixed(_: Any) -> Made:
    """A language model in bfloat16 with master weights, unrolled, clipped by global norm."""

    def step(master: Any, tokens: Any, labels: Any) -> Any:
        half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), master)

        def loss(ps: Any) -> Any:
            x = ps["embed"][tokens]
            for number in range(4):
                x = _block(x, jax.tree.map(lambda w, n=number: w[n], ps["layers"]))
            return _cross_entropy((x @ ps["embed"].T).astype(jnp.float32), labels)

        value, gradients = jax.value_and_grad(loss)(half)
        squares = [(g.astype(jnp.float32) ** 2).sum() for g in jax.tree.leaves(gradients)]
        scale = jnp.minimum(1.0, lax.rsqrt(sum(squares)))
        return _down(jax.tree.map(lambda g: g * scale, gradients), master), value

    return Made(step, (_language(4, 1024, 50304), _numbers(4, 1024), _numbers(4, 1024)), (0,))


def experts_sorted(_: Any) -> Made:
    """Experts fed by sorting tokens, with ragged products; a training step."""

    def layer(x: Any, ps: Any) -> Any:
        chance, chosen = lax.top_k(jax.nn.softmax(x @ ps["gate"]), 2)
        order = jnp.argsort(chosen.reshape(-1), stable=True)
        sizes = jnp.bincount(chosen.reshape(-1), length=16)
        fed = x[order // 2]
        inner = jax.nn.silu(lax.ragged_dot(fed, ps["up"], sizes))
        out = lax.ragged_dot(inner, ps["down"], sizes)
        back = jnp.zeros_like(out).at[order].set(out).reshape(x.shape[0], 2, -1)
        return x + (back * chance[..., None]).sum(1), None

    def step(ps: Any, x: Any) -> Any:
        def loss(ps: Any) -> Any:
            return (lax.scan(layer, x, ps)[0] ** 2).mean()

        return _down(jax.grad(loss)(ps), ps)

    shapes = {
        "gate": _floats(2, 512, 16),
        "up": _floats(2, 16, 512, 1024),
        "down": _floats(2, 16, 1024, 512),
    }
    return Made(step, (shapes, _floats(4096, 512)), (0,))


def experts_capacity(_: Any) -> Made:
    """Experts with a capacity, dispatched by scatter and gather; a training step."""

    def layer(ps: Any, x: Any) -> Any:
        chance = jax.nn.softmax(x @ ps["gate"])
        chosen = chance.argmax(-1)
        hot = jax.nn.one_hot(chosen, 8, dtype=jnp.int32)
        rank = (jnp.cumsum(hot, 0) * hot).sum(-1) - 1
        place = jnp.where(rank < 768, chosen * 768 + rank, 8 * 768)
        fed = jnp.zeros((8 * 768 + 1, x.shape[1]), x.dtype).at[place].add(x)[:-1]
        inner = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", fed.reshape(8, 768, -1), ps["up"]))
        out = jnp.einsum("ecf,efd->ecd", inner, ps["down"]).reshape(8 * 768, -1)
        out = jnp.concatenate([out, jnp.zeros((1, out.shape[1]), out.dtype)])
        return x + out[place] * chance.max(-1, keepdims=True)

    def step(ps: Any, x: Any) -> Any:
        return _down(jax.grad(lambda ps: (layer(ps, x) ** 2).mean())(ps), ps)

    shapes = {
        "gate": _floats(1024, 8),
        "up": _floats(8, 1024, 2048),
        "down": _floats(8, 2048, 1024),
    }
    return Made(step, (shapes, _floats(4096, 1024)), (0,))


def _dlrm_scores(ps: Any, dense: Any, sparse: Any) -> Any:
    looked_up = [table[ids].sum(1) for table, ids in zip(ps["tables"], sparse, strict=True)]
    x = dense
    for w in ps["bottom"]:
        x = jax.nn.relu(x @ w)
    features = jnp.stack([x, *looked_up], 1)
    crossed = jnp.einsum("bif,bjf->bij", features, features).reshape(x.shape[0], -1)
    y = jnp.concatenate([x, crossed], 1)
    for w in ps["top"]:
        y = jax.nn.relu(y @ w)
    return y[:, 0]


def _dlrm(rows: int, tables: int, width: int, batch: int) -> Any:
    crossed = width + (tables + 1) ** 2
    parameters = {
        "tables": [_floats(rows, width) for _ in range(tables)],
        "bottom": [_floats(13, 512), _floats(512, width)],
        "top": [_floats(crossed, 512), _floats(512, 1)],
    }
    return parameters, _floats(batch, 13), [_numbers(batch, 8) for _ in range(tables)]


def _dlrm_loss(ps: Any, dense: Any, sparse: Any, clicked: Any) -> Any:
    scores = _dlrm_scores(ps, dense, sparse)
    return (jnp.logaddexp(0, scores) - scores * clicked).mean()


def dlrm(_: Any) -> Made:
    """Recommendations from six tables of a quarter million rows; plain descent."""

    def step(ps: Any, dense: Any, sparse: Any, clicked: Any) -> Any:
        value, gradients = jax.value_and_grad(_dlrm_loss)(ps, dense, sparse, clicked)
        return _down(gradients, ps), value

    return Made(step, (*_dlrm(262144, 6, 128, 4096), _floats(4096)), (0,))


def dlrm_adagrad(_: Any) -> Made:
    """The same with Adagrad by rows of tables of different sizes."""

    def step(ps: Any, sums: Any, dense: Any, sparse: Any, clicked: Any) -> Any:
        gradients = jax.grad(_dlrm_loss)(ps, dense, sparse, clicked)
        sums = [s + (g * g).mean(-1) for s, g in zip(sums, gradients["tables"], strict=True)]
        tables = [
            t - 0.1 * g * lax.rsqrt(s + 1e-6)[:, None]
            for t, g, s in zip(ps["tables"], gradients["tables"], sums, strict=True)
        ]
        rest = {name: _down(gradients[name], ps[name]) for name in ("bottom", "top")}
        return {"tables": tables, **rest}, sums

    ps, dense, sparse = _dlrm(100000, 4, 64, 2048)
    ps["tables"] = [_floats(50000 * (number + 1), 64) for number in range(4)]
    sums = [_floats(table.shape[0]) for table in ps["tables"]]
    return Made(step, (ps, sums, dense, sparse, _floats(2048)), (0, 1))


def sparse_rows(_: Any) -> Made:
    """Updates of the rows of a table that were looked up, by hand: unique ids, then a scatter."""

    def step(table: Any, moment: Any, ids: Any, targets: Any) -> Any:
        flat, back = jnp.unique(ids.reshape(-1), return_inverse=True, size=8192, fill_value=0)
        rows = table[flat]

        def loss(rows: Any) -> Any:
            return ((rows[back].reshape(*ids.shape, -1).mean(1) - targets) ** 2).sum()

        gradients = jax.grad(loss)(rows)
        moment = moment.at[flat].multiply(0.9).at[flat].add(gradients)
        return table.at[flat].add(-0.1 * moment[flat]), moment

    big = _floats(500000, 128)
    return Made(step, (big, big, _numbers(1024, 8), _floats(1024, 128)), (0, 1))


def two_towers(_: Any) -> Made:
    """Retrieval with two towers over tables, negatives from the batch."""

    def step(ps: Any, users: Any, items: Any) -> Any:
        def loss(ps: Any) -> Any:
            one = ps["users"][users].mean(1) @ ps["left"]
            other = ps["items"][items].mean(1) @ ps["right"]
            scores = _normed(one) @ _normed(other).T
            return _cross_entropy(scores, jnp.arange(scores.shape[0]))

        return _down(jax.grad(loss)(ps), ps)

    shapes = {
        "users": _floats(400000, 64),
        "items": _floats(200000, 64),
        "left": _floats(64, 256),
        "right": _floats(64, 256),
    }
    return Made(step, (shapes, _numbers(2048, 16), _numbers(2048, 4)), (0,))


def graph_net(_: Any) -> Made:
    """Messages over a graph's edges, gathered and summed by segments; a training step."""

    def step(ps: Any, nodes: Any, sources: Any, targets: Any, labels: Any) -> Any:
        def loss(ps: Any) -> Any:
            x = nodes
            for w, v in ps:
                sums = jax.ops.segment_sum(x[sources], targets, x.shape[0])
                x = jax.nn.relu(x @ w + sums @ v)
            return _cross_entropy(x, labels)

        return _down(jax.grad(loss)(ps), ps)

    shapes = [(_floats(128, 128), _floats(128, 128)) for _ in range(3)]
    edges = _numbers(262144)
    return Made(step, (shapes, _floats(32768, 128), edges, edges, _numbers(32768)), (0,))


def graph_attention(_: Any) -> Made:
    """Attention over a graph's edges: segment max, sums and gathers; inference and gradient."""

    def step(ps: Any, nodes: Any, sources: Any, targets: Any) -> Any:
        count = nodes.shape[0]

        def loss(ps: Any) -> Any:
            h = nodes @ ps["w"]
            score = jax.nn.leaky_relu((h @ ps["a"])[sources] + (h @ ps["b"])[targets])[:, 0]
            top = jax.ops.segment_max(score, targets, count)
            weight = jnp.exp(score - lax.stop_gradient(top)[targets])
            total = jax.ops.segment_sum(weight, targets, count)
            mixed = jax.ops.segment_sum(h[sources] * weight[:, None], targets, count)
            return (jnp.tanh(mixed / (total[:, None] + 1e-6)) ** 2).mean()

        return jax.value_and_grad(loss)(ps)

    shapes = {"w": _floats(64, 128), "a": _floats(128, 1), "b": _floats(128, 1)}
    return Made(step, (shapes, _floats(16384, 64), _numbers(131072), _numbers(131072)))


def word_vectors(_: Any) -> Made:
    """Words and their company with sampled negatives, several steps in a loop."""

    def step(tables: Any, key: Any, words: Any, company: Any) -> Any:
        def one(carried: Any, batch: Any) -> Any:
            tables, key = carried
            key, own = jax.random.split(key)
            others = jax.random.randint(own, (batch[0].shape[0], 8), 0, 100000)

            def loss(tables: Any) -> Any:
                word, near = tables[0][batch[0]], tables[1][batch[1]]
                far = tables[1][others]
                apart = jnp.einsum("bd,bnd->bn", word, far)
                return -(
                    jax.nn.log_sigmoid((word * near).sum(-1)).mean()
                    + jax.nn.log_sigmoid(-apart).mean()
                )

            value, gradients = jax.value_and_grad(loss)(tables)
            return (_down(gradients, tables), key), value

        return lax.scan(one, (tables, key), (words, company))

    tables = (_floats(100000, 128), _floats(100000, 128))
    key = _floats(2, dtype="uint32")
    return Made(step, (tables, key, _numbers(4, 1024), _numbers(4, 1024)), (0,))


def decode_step(_: Any) -> Made:
    """One token for each of 32 sequences from caches of keys and values of sixteen layers."""

    def step(ps: Any, cache: Any, token: Any, position: Any) -> Any:
        x = ps["embed"][token]

        def one(x: Any, layer: Any) -> Any:
            w, keys, values = layer
            q, k, v = jnp.split(_normed(x) @ w["qkv"], 3, -1)
            keys = lax.dynamic_update_slice(keys, k[:, None], (0, position, 0))
            values = lax.dynamic_update_slice(values, v[:, None], (0, position, 0))
            q = q.reshape(32, 16, 64)
            scores = jnp.einsum("bhd,bthd->bht", q, keys.reshape(32, 2048, 16, 64))
            scores = jnp.where(jnp.arange(2048) <= position, scores, -1e9)
            chance = jax.nn.softmax(scores.astype(jnp.float32), -1).astype(x.dtype)
            mixed = jnp.einsum("bht,bthd->bhd", chance, values.reshape(32, 2048, 16, 64))
            x = x + mixed.reshape(32, 1024) @ w["out"]
            return x + jax.nn.gelu(_normed(x) @ w["up"]) @ w["down"], (keys, values)

        x, cache = lax.scan(one, x, (ps["layers"], *cache))
        best, which = lax.top_k((x @ ps["embed"].T).astype(jnp.float32), 40)
        return which[:, 0], best, cache

    held = _halves(16, 32, 2048, 1024)
    model = _language(16, 1024, 32768, "bfloat16")
    return Made(step, (model, (held, held), _numbers(32), _numbers()), (1,))


def paged_decode(_: Any) -> Made:
    """Attention over pages of a cache, found by a table, and written by scatter."""

    def step(pages: Any, table: Any, lengths: Any, q: Any, k: Any, v: Any) -> Any:
        rows = jnp.arange(table.shape[0])
        page = table[rows, lengths // 64]
        pages = pages.at[0, page, lengths % 64].set(k).at[1, page, lengths % 64].set(v)
        keys, values = (side[table].reshape(64, 2048, 8, 128) for side in pages)
        scores = jnp.einsum("bhd,bthd->bht", q, keys) / 11.3
        seen = jnp.arange(2048) <= lengths[:, None]
        chance = jax.nn.softmax(jnp.where(seen[:, None], scores, -1e9), -1)
        return pages, jnp.einsum("bht,bthd->bhd", chance, values)

    one = _halves(64, 8, 128)
    return Made(
        step,
        (_halves(2, 2048, 64, 8, 128), _numbers(64, 32), _numbers(64), one, one, one),
        (0,),
    )


def prefill_blocks(_: Any) -> Made:
    """Attention block by block with running maxima, four layers of a long prompt."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        def one(carried: Any, block: Any) -> Any:
            most, total, mixed = carried
            scores = jnp.einsum("thd,shd->hts", q, block[0]) / 8
            now = jnp.maximum(most, scores.max(-1))
            weight = jnp.exp(scores - now[..., None])
            fade = jnp.exp(most - now)
            mixed = mixed * fade[..., None] + jnp.einsum("hts,shd->htd", weight, block[1])
            return (now, total * fade + weight.sum(-1), mixed), None

        start = jnp.full((16, 4096), -1e9), jnp.zeros((16, 4096)), jnp.zeros((16, 4096, 64))
        blocks = k.reshape(8, 512, 16, 64), v.reshape(8, 512, 16, 64)
        (_, total, mixed), _ = lax.scan(one, start, blocks)
        return (mixed / total[..., None]).swapaxes(0, 1).reshape(4096, 1024)

    def step(ps: Any, tokens: Any) -> Any:
        def one(x: Any, w: Any) -> Any:
            q, k, v = (p.reshape(4096, 16, 64) for p in jnp.split(_normed(x) @ w["qkv"], 3, -1))
            x = x + attend(q, k, v) @ w["out"]
            return x + jax.nn.gelu(_normed(x) @ w["up"]) @ w["down"], (k, v)

        x, cache = lax.scan(one, ps["embed"][tokens], ps["layers"])
        return x[-1] @ ps["embed"].T, cache

    return Made(step, (_language(4, 1024, 16384), _numbers(4096)))


def _named(x: Any, name: str) -> Any:
    return import_module("jax.ad_checkpoint").checkpoint_name(x, name)


def offload_activations(_: Any) -> Made:
    """A step whose residuals wait in the host's memory."""
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["kept"],
        offload_src="device",
        offload_dst="pinned_host",
    )

    def step(ps: Any, x: Any) -> Any:
        def block(x: Any, layer: Any) -> Any:
            return _block(_named(x, "kept"), layer), None

        def loss(ps: Any) -> Any:
            return (lax.scan(jax.checkpoint(block, policy=policy), x, ps)[0] ** 2).mean()

        return _down(jax.grad(loss)(ps), ps)

    return Made(step, (_layers(8, 512), _floats(8, 512, 512)), (0,))


def _on_host(shapes: Any, device: Any) -> Any:
    kept = sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=kept), shapes)


def offload_moments(devices: Sequence[Any]) -> Made:
    """A step of Adam whose moments lie in the host's memory, fetched and sent back."""
    here = sharding.SingleDeviceSharding(devices[0], memory_kind="device")
    there = sharding.SingleDeviceSharding(devices[0], memory_kind="pinned_host")

    def step(ps: Any, moments: Any, tokens: Any, labels: Any) -> Any:
        gradients = jax.grad(_language_loss)(ps, tokens, labels)
        fetched = jax.device_put(moments, here)
        ps, first, second = _adam(gradients, (ps, *fetched))
        return ps, jax.device_put((first, second), there)

    model = _language(6, 512, 16384)
    moments = _on_host((model, model), devices[0])
    return Made(step, (model, moments, _numbers(4, 512), _numbers(4, 512)), (0, 1))


def offload_cache(devices: Sequence[Any]) -> Made:
    """Decoding with a cache in the host's memory, layer by layer in and a new row out."""
    here = sharding.SingleDeviceSharding(devices[0], memory_kind="device")
    there = sharding.SingleDeviceSharding(devices[0], memory_kind="pinned_host")

    def step(cache: Any, ws: Any, x: Any, position: Any) -> Any:
        def one(number: Any, carried: Any) -> Any:
            x, cache = carried
            held = lax.dynamic_index_in_dim(cache, number, 0, keepdims=False)
            held = jax.device_put(held, here)
            row = jnp.tanh(x @ ws[number])
            chance = jax.nn.softmax(jnp.einsum("bd,btd->bt", row, held), -1)
            x = x + jnp.einsum("bt,btd->bd", chance, held)
            new = jax.device_put(row[None, :, None], there)
            return x, lax.dynamic_update_slice(cache, new, (number, 0, position, 0))

        held = jax.device_put(cache, jax.memory.Space.Host)  # a no-op that names the space
        return lax.fori_loop(0, 8, one, (x, held))

    cache = _on_host(_floats(8, 32, 1024, 512), devices[0])
    return Made(step, (cache, _floats(8, 512, 512), _floats(32, 512), _numbers()), (0,))


def offload_weights(devices: Sequence[Any]) -> Made:
    """Inference with weights in the host's memory, one layer at a time."""
    here = sharding.SingleDeviceSharding(devices[0], memory_kind="device")

    def step(ws: Any, x: Any) -> Any:
        def one(x: Any, layer: Any) -> Any:
            return _block(x, jax.device_put(layer, here)), None

        return lax.scan(one, x, ws)[0]

    return Made(step, (_on_host(_layers(12, 1024), devices[0]), _floats(4, 512, 1024)))


def branches_in_loop(_: Any) -> Made:
    """Layers of two kinds, chosen in a loop, and a training step through them."""

    def step(ps: Any, kinds: Any, x: Any) -> Any:
        def one(x: Any, given: Any) -> Any:
            kind, w = given
            x = lax.cond(
                kind > 0,
                lambda x: x + jax.nn.gelu(_normed(x) @ w["up"]) @ w["down"],
                lambda x: x + _attention(_normed(x), w["qkv"], 8) @ w["out"],
                x,
            )
            return x, x.mean()

        def loss(ps: Any) -> Any:
            x_last, means = lax.scan(one, x, (kinds, ps))
            return (x_last**2).mean() + means.sum()

        return _down(jax.grad(loss)(ps), ps)

    return Made(step, (_layers(6, 512), _numbers(6), _floats(4, 256, 512)), (0,))


def sampling(_: Any) -> Made:
    """Sampling from the nucleus: sorts of a large vocabulary, sums, penalties by scatter."""

    def step(logits: Any, past: Any, key: Any) -> Any:
        rows = jnp.arange(logits.shape[0])[:, None]
        counts = jnp.zeros_like(logits).at[rows, past].add(1.0)
        logits = logits - 0.3 * counts
        order = jnp.argsort(-logits, axis=-1)
        ranked = jnp.take_along_axis(logits, order, -1)
        chance = jax.nn.softmax(ranked, -1)
        kept = jnp.where(jnp.cumsum(chance, -1) - chance < 0.9, ranked, -1e9)
        which = jax.random.categorical(key, kept)
        return jnp.take_along_axis(order, which[:, None], -1), kept

    return Made(step, (_floats(64, 50304), _numbers(64, 512), _floats(2, dtype="uint32")))


def speculate(_: Any) -> Made:
    """A small model drafts, a large one judges, until enough tokens are there."""

    def run(small: Any, large: Any, tokens: Any) -> Any:
        def logits(ps: Any, tokens: Any) -> Any:
            x, _ = lax.scan(lambda x, w: (_block(x, w, 4), None), ps["embed"][tokens], ps["layers"])
            return x @ ps["embed"].T

        def go_on(state: Any) -> Any:
            return state[1] < 200

        def one(state: Any) -> Any:
            tokens, done = state
            guess = logits(small, tokens).argmax(-1)
            truth = logits(large, tokens).argmax(-1)
            agreed = jnp.cumprod(jnp.where(guess == truth, 1, 0), -1).sum(-1).min()
            new = jnp.where(jnp.arange(256) < done + agreed + 1, truth, tokens)
            return new, done + agreed + 1

        return lax.while_loop(go_on, one, (tokens, jnp.int32(8)))

    models = _language(2, 256, 8192), _language(6, 512, 8192)
    return Made(run, (*models, _numbers(4, 256)), (2,))


def state_space(_: Any) -> Made:
    """A linear recurrence by associative scan in a trained stack of layers."""

    def step(ps: Any, x: Any) -> Any:
        def one(x: Any, w: Any) -> Any:
            decay = jax.nn.sigmoid(x @ w["a"])

            def merged(left: Any, right: Any) -> Any:
                return left[0] * right[0], left[1] * right[0] + right[1]

            _, state = lax.associative_scan(merged, (decay, x @ w["b"]), axis=1)
            return x + jax.nn.silu(x @ w["c"]) * state, None

        def loss(ps: Any) -> Any:
            return (lax.scan(jax.checkpoint(one), x, ps)[0] ** 2).mean()

        return _down(jax.grad(loss)(ps), ps)

    w = _floats(4, 512, 512)
    return Made(step, ({"a": w, "b": w, "c": w}, _floats(4, 1024, 512)), (0,))


def alignments(_: Any) -> Made:
    """Losses of alignments by dynamic programming over time, with gradients."""

    def step(w: Any, x: Any, labels: Any) -> Any:
        def loss(w: Any) -> Any:
            scores = jax.nn.log_softmax(x @ w)
            blank = scores[..., 0]
            said = jnp.take_along_axis(scores, labels[:, None, :].repeat(x.shape[1], 1), -1)

            def one(alpha: Any, given: Any) -> Any:
                now, said = given
                stay = alpha + now[:, None]
                moved = jnp.pad(alpha[:, :-1], ((0, 0), (1, 0)), constant_values=-1e9) + said
                return jnp.logaddexp(stay, moved), None

            start = jnp.where(jnp.arange(labels.shape[1]) == 0, 0.0, -1e9)
            start = jnp.broadcast_to(start, labels.shape)
            last, _ = lax.scan(one, start, (blank.T, said.swapaxes(0, 1)))
            return -last[:, -1].mean()

        return jax.value_and_grad(loss)(w)

    return Made(step, (_floats(256, 1024), _floats(16, 400, 256), _numbers(16, 128)))


def relative_positions(_: Any) -> Made:
    """An encoder and a decoder with learned biases by distance, trained."""

    def step(ps: Any, source: Any, target: Any, labels: Any) -> Any:
        def attend(x: Any, y: Any, w: Any, bias: Any) -> Any:
            q, k, v = (t.reshape(*t.shape[:2], 8, 64) for t in (x @ w[0], y @ w[1], y @ w[2]))
            scores = jnp.einsum("bthd,bshd->bhts", q, k) + bias
            mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, -1), v)
            return mixed.reshape(x.shape) @ w[3]

        def loss(ps: Any) -> Any:
            apart = jnp.arange(256)[:, None] - jnp.arange(256) + 255
            bias = ps["bias"][apart].transpose(2, 0, 1)
            x, y = ps["embed"][source], ps["embed"][target]
            for w in ps["encoder"]:
                x = x + attend(_normed(x), _normed(x), w, bias)
            for w in ps["decoder"]:
                y = y + attend(_normed(y), _normed(x), w, bias)
            return _cross_entropy(y @ ps["embed"].T, labels)

        return _down(jax.grad(loss)(ps), ps)

    shapes = {
        "embed": _floats(32128, 512),
        "bias": _floats(511, 8),
        "encoder": [_floats(4, 512, 512) for _ in range(2)],
        "decoder": [_floats(4, 512, 512) for _ in range(2)],
    }
    batch = _numbers(16, 256)
    return Made(step, (shapes, batch, batch, batch), (0,))


def histograms(_: Any) -> Made:
    """Statistics of events: counts by scatter, sorted segments, quantiles and joins."""

    def step(keys: Any, amounts: Any, table: Any) -> Any:
        order = jnp.argsort(keys)
        keys, amounts = keys[order], amounts[order]
        sums = jnp.zeros(65536).at[keys].add(amounts)
        counts = jnp.zeros(65536, jnp.int32).at[keys].add(1)
        largest = jnp.full(65536, -1e9).at[keys].max(amounts)
        found = jnp.searchsorted(table, amounts)
        return sums / jnp.maximum(counts, 1), largest, table[found], jnp.quantile(amounts, 0.9)

    return Made(step, (_numbers(524288), _floats(524288), _floats(4096)))


# All devices of a host.


def _mesh(devices: Sequence[Any], *names: str) -> Any:
    count = len(devices)
    grid = (count,) if len(names) == 1 else (2, count // 2)
    array = import_module("numpy").array(devices).reshape(grid)
    return sharding.Mesh(array, names)


def _laid(mesh: Any, shapes: Any, spec: Any, kind: str | None = None) -> Any:
    named = sharding.NamedSharding(mesh, spec, memory_kind=kind)
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=named), shapes)


def fsdp_gpt(devices: Sequence[Any]) -> Made:
    """A language model whose parameters, state and batch are sharded alike."""
    mesh = _mesh(devices, "d")

    def step(state: Any, tokens: Any, labels: Any) -> Any:
        return _adam(jax.grad(_language_loss)(state[0], tokens, labels), state)

    model = {
        "embed": _laid(mesh, _floats(32768, 1024), P("d")),
        "layers": _laid(mesh, _layers(8, 1024), P(None, "d")),
    }
    batch = _laid(mesh, _numbers(16, 512), P("d"))
    return Made(step, ((model, model, model), batch, batch), (0,))


def tensor_parallel_gpt(devices: Sequence[Any]) -> Made:
    """A language model over data and model axes."""
    mesh = _mesh(devices, "d", "m")
    layers = _layers(4, 1024, "bfloat16")
    laid = {
        "qkv": _laid(mesh, layers["qkv"], P(None, None, "m")),
        "out": _laid(mesh, layers["out"], P(None, "m")),
        "up": _laid(mesh, layers["up"], P(None, None, "m")),
        "down": _laid(mesh, layers["down"], P(None, "m")),
    }
    model = {"embed": _laid(mesh, _halves(32768, 1024), P("m")), "layers": laid}
    batch = _laid(mesh, _numbers(8, 1024), P("d"))

    def step(ps: Any, tokens: Any, labels: Any) -> Any:
        return _down(jax.grad(_language_loss)(ps, tokens, labels), ps)

    return Made(step, (model, batch, batch), (0,))


def experts_exchanged(devices: Sequence[Any]) -> Made:
    """Experts on different devices; tokens travel by all-to-all; a training step."""
    mesh = _mesh(devices, "d")
    count = len(devices)

    def layer(gate: Any, up: Any, down: Any, x: Any) -> Any:
        chance = jax.nn.softmax(x @ gate)
        chosen = chance.argmax(-1)
        hot = jax.nn.one_hot(chosen, count, dtype=jnp.int32)
        rank = (jnp.cumsum(hot, 0) * hot).sum(-1) - 1
        fed = jnp.zeros((count, 512, x.shape[1]), x.dtype)
        fed = fed.at[chosen, rank].add(x, mode="drop")
        sent = lax.all_to_all(fed, "d", 0, 0, tiled=True)
        out = jax.nn.gelu(sent.reshape(-1, x.shape[1]) @ up[0]) @ down[0]
        back = lax.all_to_all(out.reshape(fed.shape), "d", 0, 0, tiled=True)
        taken = back.at[chosen, rank].get(mode="fill", fill_value=0)
        return x + taken * chance.max(-1, keepdims=True)

    mapped = jax.shard_map(
        layer,
        mesh=mesh,
        in_specs=(P(), P("d"), P("d"), P("d")),
        out_specs=P("d"),
        check_vma=False,
    )

    def step(ps: Any, x: Any) -> Any:
        return _down(jax.grad(lambda ps: (mapped(*ps, x) ** 2).mean())(ps), ps)

    shapes = (
        _laid(mesh, _floats(512, count), P()),
        _laid(mesh, _floats(count, 512, 2048), P("d")),
        _laid(mesh, _floats(count, 2048, 512), P("d")),
    )
    return Made(step, (shapes, _laid(mesh, _floats(1024 * count, 512), P("d"))), (0,))


def ring_attention(devices: Sequence[Any]) -> Made:
    """Attention over a sharded sequence: keys and values go round; a gradient through it."""
    mesh = _mesh(devices, "s")
    count = len(devices)
    ring = [(one, (one + 1) % count) for one in range(count)]

    def attend(q: Any, k: Any, v: Any) -> Any:
        def one(carried: Any, _: Any) -> Any:
            k, v, most, total, mixed = carried
            scores = jnp.einsum("bthd,bshd->bhts", q, k) / 8
            now = jnp.maximum(most, scores.max(-1))
            weight, fade = jnp.exp(scores - now[..., None]), jnp.exp(most - now)
            mixed = mixed * fade[..., None] + jnp.einsum("bhts,bshd->bhtd", weight, v)
            k, v = (lax.ppermute(t, "s", ring) for t in (k, v))
            return (k, v, now, total * fade + weight.sum(-1), mixed), None

        b, t, h, d = q.shape
        start = jnp.full((b, h, t), -1e9), jnp.zeros((b, h, t)), jnp.zeros((b, h, t, d))
        (_, _, _, total, mixed), _ = lax.scan(one, (k, v, *start), None, length=count)
        return (mixed / total[..., None]).swapaxes(1, 2)

    spec = P(None, "s")
    mapped = jax.shard_map(
        attend, mesh=mesh, in_specs=(spec, spec, spec), out_specs=spec, check_vma=False
    )

    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            q, k, v = (p.reshape(*x.shape[:2], 8, 64) for p in jnp.split(x @ w, 3, -1))
            return (mapped(q, k, v) ** 2).mean()

        return _down(jax.grad(loss)(w), w)

    x = _laid(mesh, _floats(2, 1024 * count, 512), spec)
    return Made(step, (_laid(mesh, _floats(512, 1536), P()), x), (0,))


def ring_forward(devices: Sequence[Any]) -> Made:
    """Layers of ring attention in bfloat16, a loop in a loop, inference."""
    mesh = _mesh(devices, "s")
    count = len(devices)
    ring = [(one, (one + 1) % count) for one in range(count)]

    def run(x: Any, ws: Any) -> Any:
        def layer(x: Any, w: Any) -> Any:
            q, k, v = jnp.split(x @ w, 3, -1)

            def one(_: Any, carried: Any) -> Any:
                k, v, mixed = carried
                mixed = mixed + jax.nn.relu(q @ k.T) @ v
                return lax.ppermute(k, "s", ring), lax.ppermute(v, "s", ring), mixed

            _, _, mixed = lax.fori_loop(0, count, one, (k, v, jnp.zeros_like(x)))
            return x + mixed, None

        return lax.scan(layer, x, ws)[0]

    mapped = jax.shard_map(
        run, mesh=mesh, in_specs=(P("s"), P()), out_specs=P("s"), check_vma=False
    )
    x = _laid(mesh, _halves(2048 * count, 512), P("s"))
    return Made(mapped, (x, _laid(mesh, _halves(4, 512, 1536), P())), (0,))


def pipeline(devices: Sequence[Any]) -> Made:
    """Stages on different devices; small batches pass from one to the next; trained."""
    mesh = _mesh(devices, "p")
    count = len(devices)
    chain = [(one, (one + 1) % count) for one in range(count)]

    def run(ws: Any, xs: Any) -> Any:
        w = ws[0]
        place = lax.axis_index("p")

        def one(carried: Any, number: Any) -> Any:
            held, outs = carried
            fed = jnp.where(place == 0, xs[number % xs.shape[0]], held)
            made = jax.nn.gelu(fed @ w[0]) @ w[1]
            outs = lax.dynamic_update_index_in_dim(outs, made, number % xs.shape[0], 0)
            return (lax.ppermute(made, "p", chain), outs), None

        start = jnp.zeros(xs.shape[1:], xs.dtype), jnp.zeros_like(xs)
        (_, outs), _ = lax.scan(one, start, jnp.arange(xs.shape[0] + count - 1))
        return lax.psum(jnp.where(place == count - 1, outs, 0), "p")

    mapped = jax.shard_map(run, mesh=mesh, in_specs=(P("p"), P()), out_specs=P(), check_vma=False)

    def step(ws: Any, xs: Any) -> Any:
        return _down(jax.grad(lambda ws: (mapped(ws, xs) ** 2).mean())(ws), ws)

    ws = _laid(mesh, _floats(count, 2, 1024, 1024), P("p"))
    return Made(step, (ws, _laid(mesh, _floats(8, 256, 1024), P())), (0,))


def sharded_words(devices: Sequence[Any]) -> Made:
    """A table of words sharded by rows, looked up, trained with Adam."""
    mesh = _mesh(devices, "d", "m")

    def step(state: Any, tokens: Any, labels: Any) -> Any:
        def loss(ps: Any) -> Any:
            x = jnp.tanh(ps["embed"][tokens] @ ps["w"])
            return _cross_entropy(x @ ps["out"], labels)

        return _adam(jax.grad(loss)(state[0]), state)

    model = {
        "embed": _laid(mesh, _floats(131072, 512), P("m")),
        "w": _laid(mesh, _floats(512, 512), P()),
        "out": _laid(mesh, _floats(512, 16384), P(None, "m")),
    }
    batch = _laid(mesh, _numbers(16, 256), P("d"))
    return Made(step, ((model, model, model), batch, batch), (0,))


def dlrm_sharded(devices: Sequence[Any]) -> Made:
    """Tables on different devices, rows exchanged, the rest in data parallel."""
    mesh = _mesh(devices, "d")
    count = len(devices)

    def local(table: Any, ids: Any, dense: Any, w: Any) -> Any:
        rows = table[0][ids[0]].sum(1)
        mine = lax.all_to_all(rows.reshape(count, -1, rows.shape[-1]), "d", 0, 1, tiled=True)
        mine = mine.reshape(dense.shape[0], -1)
        return jax.nn.relu(jnp.concatenate([dense, mine], 1) @ w)

    mapped = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(P("d"), P("d"), P("d"), P()),
        out_specs=P("d"),
        check_vma=False,
    )

    def step(ps: Any, ids: Any, dense: Any) -> Any:
        def loss(ps: Any) -> Any:
            return (mapped(ps["table"], ids, dense, ps["w"]) ** 2).mean()

        return _down(jax.grad(loss)(ps), ps)

    shapes = {
        "table": _laid(mesh, _floats(count, 200000, 64), P("d")),
        "w": _laid(mesh, _floats(64 + 64 * count, 256), P()),
    }
    ids = _laid(mesh, _numbers(count, 1024 * count, 8), P("d"))
    return Made(step, (shapes, ids, _laid(mesh, _floats(1024 * count, 64), P("d"))), (0,))


def graphs_parallel(devices: Sequence[Any]) -> Made:
    """Batches of graphs, one a device, gradients summed."""
    mesh = _mesh(devices, "d")

    def step(ws: Any, nodes: Any, sources: Any, targets: Any) -> Any:
        def local(ws: Any, nodes: Any, sources: Any, targets: Any) -> Any:
            def loss(ws: Any) -> Any:
                x = nodes[0]
                for w in ws:
                    sums = jax.ops.segment_sum(x[sources[0]], targets[0], x.shape[0])
                    x = jax.nn.relu(sums @ w)
                return (x**2).mean()

            return lax.pmean(jax.grad(loss)(ws), "d")

        mapped = jax.shard_map(
            local,
            mesh=mesh,
            in_specs=(P(), P("d"), P("d"), P("d")),
            out_specs=P(),
            check_vma=False,
        )
        return _down(mapped(ws, nodes, sources, targets), ws)

    count = len(devices)
    ws = _laid(mesh, [_floats(256, 256), _floats(256, 256)], P())
    edges = _laid(mesh, _numbers(count, 65536), P("d"))
    return Made(step, (ws, _laid(mesh, _floats(count, 8192, 256), P("d")), edges, edges), (0,))


def fsdp_offload(devices: Sequence[Any]) -> Made:
    """Sharded parameters, moments in the host's memory, residuals offloaded."""
    mesh = _mesh(devices, "d")
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["kept"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    spec = P(None, "d")
    layers = _laid(mesh, _layers(6, 1024), spec)
    moment = _laid(mesh, _layers(6, 1024), spec, "pinned_host")
    here = jax.tree.map(lambda s: s.sharding, layers)
    there = jax.tree.map(lambda s: s.sharding, moment)

    def step(ps: Any, moment: Any, x: Any) -> Any:
        def block(x: Any, layer: Any) -> Any:
            return _block(_named(x, "kept"), layer), None

        def loss(ps: Any) -> Any:
            return (lax.scan(jax.checkpoint(block, policy=policy), x, ps)[0] ** 2).mean()

        gradients = jax.grad(loss)(ps)
        held = jax.device_put(moment, here)
        held = jax.tree.map(lambda m, g: 0.9 * m + g, held, gradients)
        return _down(held, ps), jax.device_put(held, there)

    x = _laid(mesh, _floats(2 * len(devices), 512, 1024), P("d"))
    return Made(step, (layers, moment, x), (0, 1))


def overlapped_products(devices: Sequence[Any]) -> Made:
    """Products with gathered and scattered operands, for collectives to hide in."""
    mesh = _mesh(devices, "d")

    def local(x: Any, ups: Any, downs: Any) -> Any:
        def one(x: Any, w: Any) -> Any:
            whole = lax.all_gather(x, "d", axis=0, tiled=True)
            inner = jax.nn.gelu(whole @ w[0])
            return x + lax.psum_scatter(inner @ w[1], "d", scatter_dimension=0, tiled=True), None

        return lax.scan(one, x, (ups, downs))[0]

    specs = (P("d"), P(None, None, "d"), P(None, "d"))
    mapped = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=P("d"), check_vma=False)

    def step(ws: Any, x: Any) -> Any:
        return _down(jax.grad(lambda ws: (mapped(x, *ws) ** 2).mean())(ws), ws)

    ws = (
        _laid(mesh, _floats(4, 1024, 4096), specs[1]),
        _laid(mesh, _floats(4, 4096, 1024), specs[2]),
    )
    return Made(step, (ws, _laid(mesh, _floats(4096, 1024), P("d"))), (0,))


def sharded_cache(devices: Sequence[Any]) -> Made:
    """Decoding with caches sharded by heads, tokens sampled, in a loop."""
    mesh = _mesh(devices, "d", "m")

    def run(ps: Any, cache: Any, token: Any) -> Any:
        def one(carried: Any, position: Any) -> Any:
            cache, token = carried
            x = ps["embed"][token]
            q, k, v = (p.reshape(16, 16, 64) for p in jnp.split(x @ ps["qkv"], 3, -1))
            keys = lax.dynamic_update_slice(cache[0], k[:, None], (0, position, 0, 0))
            values = lax.dynamic_update_slice(cache[1], v[:, None], (0, position, 0, 0))
            scores = jnp.einsum("bhd,bthd->bht", q, keys)
            scores = jnp.where(jnp.arange(1024) <= position, scores, -1e9)
            x = x + jnp.einsum("bht,bthd->bhd", jax.nn.softmax(scores), values).reshape(16, 1024)
            token = (x @ ps["embed"].T).argmax(-1).astype(jnp.int32)
            return ((keys, values), token), token

        return lax.scan(one, (cache, token), jnp.arange(64))

    model = {
        "embed": _laid(mesh, _floats(32768, 1024), P("m")),
        "qkv": _laid(mesh, _floats(1024, 3072), P(None, "m")),
    }
    held = _laid(mesh, _floats(16, 1024, 16, 64), P("d", None, "m"))
    return Made(run, (model, (held, held), _laid(mesh, _numbers(16), P("d"))), (1,))


def sharded_optimizer(devices: Sequence[Any]) -> Made:
    """Gradients scattered, moments sharded, parameters gathered again."""
    mesh = _mesh(devices, "d")

    def local(ws: Any, moment: Any, x: Any) -> Any:
        def loss(ws: Any) -> Any:
            y = x
            for w in ws:
                y = jnp.tanh(y @ w)
            return (y**2).mean()

        gradients = jax.grad(loss)(ws)
        parts = [lax.psum_scatter(g, "d", scatter_dimension=0, tiled=True) for g in gradients]
        moment = [0.9 * m + p for m, p in zip(moment, parts, strict=True)]
        moved = [lax.all_gather(m, "d", axis=0, tiled=True) for m in moment]
        return _down(moved, ws), moment

    specs = (P(), P("d"), P("d"))
    mapped = jax.shard_map(
        local, mesh=mesh, in_specs=specs, out_specs=(P(), P("d")), check_vma=False
    )
    ws = _laid(mesh, [_floats(2048, 2048) for _ in range(4)], P())
    moment = _laid(mesh, [_floats(2048, 2048) for _ in range(4)], P("d"))
    x = _laid(mesh, _floats(512 * len(devices), 2048), P("d"))
    return Made(mapped, (ws, moment, x), (0, 1))


def sharded_ranking(devices: Sequence[Any]) -> Made:
    """Candidates ranked over all devices: local top-k, gathered, sorted again."""
    mesh = _mesh(devices, "d")

    def local(queries: Any, items: Any, ids: Any) -> Any:
        best, which = lax.top_k(queries @ items.T, 128)
        best, which = (lax.all_gather(t, "d", axis=1, tiled=True) for t in (best, ids[which]))
        order = jnp.argsort(-best, -1)[:, :128]
        return jnp.take_along_axis(which, order, -1), jnp.take_along_axis(best, order, -1)

    mapped = jax.shard_map(
        local, mesh=mesh, in_specs=(P(), P("d"), P("d")), out_specs=(P(), P()), check_vma=False
    )
    items = _laid(mesh, _floats(65536 * len(devices), 64), P("d"))
    ids = _laid(mesh, _numbers(65536 * len(devices)), P("d"))
    return Made(mapped, (_laid(mesh, _floats(256, 64), P()), items, ids))


ON_ONE: tuple[Callable[[Any], Made], ...] = (
    gpt_adam,
    gpt_mixed,
    experts_sorted,
    experts_capacity,
    dlrm,
    dlrm_adagrad,
    sparse_rows,
    two_towers,
    graph_net,
    graph_attention,
    word_vectors,
    decode_step,
    paged_decode,
    prefill_blocks,
    offload_activations,
    offload_moments,
    offload_cache,
    offload_weights,
    branches_in_loop,
    sampling,
    speculate,
    state_space,
    alignments,
    relative_positions,
    histograms,
)
ON_ALL: tuple[Callable[[Any], Made], ...] = (
    fsdp_gpt,
    tensor_parallel_gpt,
    experts_exchanged,
    ring_attention,
    ring_forward,
    pipeline,
    sharded_words,
    dlrm_sharded,
    graphs_parallel,
    fsdp_offload,
    overlapped_products,
    sharded_cache,
    sharded_optimizer,
    sharded_ranking,
)
PRODUCTION_PROGRAMS = {maker.__name__: maker for maker in (*ON_ONE, *ON_ALL)}


def program(name: str, devices: Sequence[Any]) -> Any:
    """The factory: a program by name."""
    made = PRODUCTION_PROGRAMS[name](devices)
    jit = partial(jax.jit, made.function, donate_argnums=made.donated)
    return jit(), made.arguments
