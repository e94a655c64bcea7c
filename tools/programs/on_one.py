"""Programs on one device, with real shapes; `tools.programs.production` has them all."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tools.programs import models, parts
from tools.programs.parts import jax, jnp, lax, sharding

if TYPE_CHECKING:
    from collections.abc import Sequence


def gpt_adam(_: Any) -> parts.Program:
    """A language model of twelve layers, recomputed, with Adam and donated state."""

    def step(state: Any, tokens: Any, labels: Any) -> Any:
        return parts.adam(jax.grad(models.language_loss)(state[0], tokens, labels), state)

    model = parts.looped(768, 12, 32768)
    return parts.Program(
        step, ((model, model, model), parts.numbers(8, 512), parts.numbers(8, 512)), (0,)
    )


def gpt_mixed(_: Any) -> parts.Program:
    """A language model in bfloat16 with master weights, unrolled, clipped by global norm."""

    def step(master: Any, tokens: Any, labels: Any) -> Any:
        half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), master)

        def loss(ps: Any) -> Any:
            x = ps["embed"][tokens]
            for number in range(4):
                x = parts.wide_block(x, jax.tree.map(lambda w, n=number: w[n], ps["layers"]))
            return parts.cross_entropy((x @ ps["embed"].T).astype(jnp.float32), labels)

        value, gradients = jax.value_and_grad(loss)(half)
        squares = [(g.astype(jnp.float32) ** 2).sum() for g in jax.tree.leaves(gradients)]
        scale = jnp.minimum(1.0, lax.rsqrt(sum(squares)))
        return parts.down(jax.tree.map(lambda g: g * scale, gradients), master), value

    return parts.Program(
        step, (parts.looped(1024, 4, 50304), parts.numbers(4, 1024), parts.numbers(4, 1024)), (0,)
    )


def experts_sorted(_: Any) -> parts.Program:
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

        return parts.down(jax.grad(loss)(ps), ps)

    shapes = {
        "gate": parts.floats(2, 512, 16),
        "up": parts.floats(2, 16, 512, 1024),
        "down": parts.floats(2, 16, 1024, 512),
    }
    return parts.Program(step, (shapes, parts.floats(4096, 512)), (0,))


def experts_capacity(_: Any) -> parts.Program:
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
        return parts.down(jax.grad(lambda ps: (layer(ps, x) ** 2).mean())(ps), ps)

    shapes = {
        "gate": parts.floats(1024, 8),
        "up": parts.floats(8, 1024, 2048),
        "down": parts.floats(8, 2048, 1024),
    }
    return parts.Program(step, (shapes, parts.floats(4096, 1024)), (0,))


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
        "tables": [parts.floats(rows, width) for _ in range(tables)],
        "bottom": [parts.floats(13, 512), parts.floats(512, width)],
        "top": [parts.floats(crossed, 512), parts.floats(512, 1)],
    }
    return parameters, parts.floats(batch, 13), [parts.numbers(batch, 8) for _ in range(tables)]


def _dlrm_loss(ps: Any, dense: Any, sparse: Any, clicked: Any) -> Any:
    scores = _dlrm_scores(ps, dense, sparse)
    return (jnp.logaddexp(0, scores) - scores * clicked).mean()


def dlrm(_: Any) -> parts.Program:
    """Recommendations from six tables of a quarter million rows; plain descent."""

    def step(ps: Any, dense: Any, sparse: Any, clicked: Any) -> Any:
        value, gradients = jax.value_and_grad(_dlrm_loss)(ps, dense, sparse, clicked)
        return parts.down(gradients, ps), value

    return parts.Program(step, (*_dlrm(262144, 6, 128, 4096), parts.floats(4096)), (0,))


def dlrm_adagrad(_: Any) -> parts.Program:
    """The same with Adagrad by rows of tables of different sizes."""

    def step(ps: Any, sums: Any, dense: Any, sparse: Any, clicked: Any) -> Any:
        gradients = jax.grad(_dlrm_loss)(ps, dense, sparse, clicked)
        sums = [s + (g * g).mean(-1) for s, g in zip(sums, gradients["tables"], strict=True)]
        tables = [
            t - 0.1 * g * lax.rsqrt(s + 1e-6)[:, None]
            for t, g, s in zip(ps["tables"], gradients["tables"], sums, strict=True)
        ]
        rest = {name: parts.down(gradients[name], ps[name]) for name in ("bottom", "top")}
        return {"tables": tables, **rest}, sums

    ps, dense, sparse = _dlrm(100000, 4, 64, 2048)
    ps["tables"] = [parts.floats(50000 * (number + 1), 64) for number in range(4)]
    sums = [parts.floats(table.shape[0]) for table in ps["tables"]]
    return parts.Program(step, (ps, sums, dense, sparse, parts.floats(2048)), (0, 1))


def sparse_rows(_: Any) -> parts.Program:
    """Updates of the rows of a table that were looked up, by hand: unique ids, then a scatter."""

    def step(table: Any, moment: Any, ids: Any, targets: Any) -> Any:
        flat, back = jnp.unique(ids.reshape(-1), return_inverse=True, size=8192, fill_value=0)
        rows = table[flat]

        def loss(rows: Any) -> Any:
            return ((rows[back].reshape(*ids.shape, -1).mean(1) - targets) ** 2).sum()

        gradients = jax.grad(loss)(rows)
        moment = moment.at[flat].multiply(0.9).at[flat].add(gradients)
        return table.at[flat].add(-0.1 * moment[flat]), moment

    big = parts.floats(500000, 128)
    return parts.Program(step, (big, big, parts.numbers(1024, 8), parts.floats(1024, 128)), (0, 1))


def two_towers(_: Any) -> parts.Program:
    """Retrieval with two towers over tables, negatives from the batch."""

    def step(ps: Any, users: Any, items: Any) -> Any:
        def loss(ps: Any) -> Any:
            one = ps["users"][users].mean(1) @ ps["left"]
            other = ps["items"][items].mean(1) @ ps["right"]
            scores = parts.normed(one) @ parts.normed(other).T
            return parts.cross_entropy(scores, jnp.arange(scores.shape[0]))

        return parts.down(jax.grad(loss)(ps), ps)

    shapes = {
        "users": parts.floats(400000, 64),
        "items": parts.floats(200000, 64),
        "left": parts.floats(64, 256),
        "right": parts.floats(64, 256),
    }
    return parts.Program(step, (shapes, parts.numbers(2048, 16), parts.numbers(2048, 4)), (0,))


def graph_net(_: Any) -> parts.Program:
    """Messages over a graph's edges, gathered and summed by segments; a training step."""

    def step(ps: Any, nodes: Any, sources: Any, targets: Any, labels: Any) -> Any:
        def loss(ps: Any) -> Any:
            x = nodes
            for w, v in ps:
                sums = parts.sum_edges(x, sources, targets)
                x = jax.nn.relu(x @ w + sums @ v)
            return parts.cross_entropy(x, labels)

        return parts.down(jax.grad(loss)(ps), ps)

    shapes = [(parts.floats(128, 128), parts.floats(128, 128)) for _ in range(3)]
    edges = parts.numbers(262144)
    return parts.Program(
        step, (shapes, parts.floats(32768, 128), edges, edges, parts.numbers(32768)), (0,)
    )


def graph_attention(_: Any) -> parts.Program:
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

    shapes = {"w": parts.floats(64, 128), "a": parts.floats(128, 1), "b": parts.floats(128, 1)}
    return parts.Program(
        step, (shapes, parts.floats(16384, 64), parts.numbers(131072), parts.numbers(131072))
    )


def word_vectors(_: Any) -> parts.Program:
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
            return (parts.down(gradients, tables), key), value

        return lax.scan(one, (tables, key), (words, company))

    tables = (parts.floats(100000, 128), parts.floats(100000, 128))
    key = parts.floats(2, dtype="uint32")
    return parts.Program(step, (tables, key, parts.numbers(4, 1024), parts.numbers(4, 1024)), (0,))


def decode_step(_: Any) -> parts.Program:
    """One token for each of 32 sequences from caches of keys and values of sixteen layers."""

    def step(ps: Any, cache: Any, token: Any, position: Any) -> Any:
        x = ps["embed"][token]

        def one(x: Any, layer: Any) -> Any:
            w, keys, values = layer
            q, k, v = jnp.split(parts.normed(x) @ w["qkv"], 3, -1)
            keys = lax.dynamic_update_slice(keys, k[:, None], (0, position, 0))
            values = lax.dynamic_update_slice(values, v[:, None], (0, position, 0))
            q = q.reshape(32, 16, 64)
            scores = jnp.einsum("bhd,bthd->bht", q, keys.reshape(32, 2048, 16, 64))
            scores = jnp.where(jnp.arange(2048) <= position, scores, -1e9)
            chance = jax.nn.softmax(scores.astype(jnp.float32), -1).astype(x.dtype)
            mixed = jnp.einsum("bht,bthd->bhd", chance, values.reshape(32, 2048, 16, 64))
            x = x + mixed.reshape(32, 1024) @ w["out"]
            return parts.feed_forward(x, w, parts.normed), (keys, values)

        x, cache = lax.scan(one, x, (ps["layers"], *cache))
        best, which = lax.top_k((x @ ps["embed"].T).astype(jnp.float32), 40)
        return which[:, 0], best, cache

    held = parts.halves(16, 32, 2048, 1024)
    model = parts.looped(1024, 16, 32768, "bfloat16")
    return parts.Program(step, (model, (held, held), parts.numbers(32), parts.numbers()), (1,))


def paged_decode(_: Any) -> parts.Program:
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

    one = parts.halves(64, 8, 128)
    return parts.Program(
        step,
        (
            parts.halves(2, 2048, 64, 8, 128),
            parts.numbers(64, 32),
            parts.numbers(64),
            one,
            one,
            one,
        ),
        (0,),
    )


def prefill_blocks(_: Any) -> parts.Program:
    """Attention block by block with running maxima, four layers of a long prompt."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        def one(state: Any, block: Any) -> Any:
            scores = jnp.einsum("thd,shd->hts", q, block[0]) / 8
            mix = partial(jnp.einsum, "hts,shd->htd")
            return parts.run_softmax(state, scores, lambda weight: mix(weight, block[1])), None

        start = jnp.full((16, 4096), -1e9), jnp.zeros((16, 4096)), jnp.zeros((16, 4096, 64))
        blocks = k.reshape(8, 512, 16, 64), v.reshape(8, 512, 16, 64)
        (_, total, mixed), _ = lax.scan(one, start, blocks)
        return (mixed / total[..., None]).swapaxes(0, 1).reshape(4096, 1024)

    def step(ps: Any, tokens: Any) -> Any:
        def one(x: Any, w: Any) -> Any:
            q, k, v = (
                p.reshape(4096, 16, 64) for p in jnp.split(parts.normed(x) @ w["qkv"], 3, -1)
            )
            x = x + attend(q, k, v) @ w["out"]
            return parts.feed_forward(x, w, parts.normed), (k, v)

        x, cache = lax.scan(one, ps["embed"][tokens], ps["layers"])
        return x[-1] @ ps["embed"].T, cache

    return parts.Program(step, (parts.looped(1024, 4, 16384), parts.numbers(4096)))


def offload_activations(_: Any) -> parts.Program:
    """A step whose residuals wait in the host's memory."""
    layer = parts.offloading(parts.wide_block)

    def loss(ps: Any, x: Any) -> Any:
        return (lax.scan(layer, x, ps)[0] ** 2).mean()

    arguments = parts.block_shapes(512, 8), parts.floats(8, 512, 512)
    return parts.Program(parts.descend(loss), arguments, (0,))


def offload_moments(devices: Sequence[Any]) -> parts.Program:
    """A step of Adam whose moments lie in the host's memory, fetched and sent back."""
    here = sharding.SingleDeviceSharding(devices[0], memory_kind="device")
    there = sharding.SingleDeviceSharding(devices[0], memory_kind="pinned_host")

    def step(ps: Any, moments: Any, tokens: Any, labels: Any) -> Any:
        gradients = jax.grad(models.language_loss)(ps, tokens, labels)
        fetched = jax.device_put(moments, here)
        ps, first, second = parts.adam(gradients, (ps, *fetched))
        return ps, jax.device_put((first, second), there)

    model = parts.looped(512, 6, 16384)
    moments = parts.on_host((model, model), devices[0])
    return parts.Program(
        step, (model, moments, parts.numbers(4, 512), parts.numbers(4, 512)), (0, 1)
    )


def cache_step(device: Any, layers: int) -> Any:
    """Decoding with a cache in the host's memory, layer by layer in and a new row out."""
    here = sharding.SingleDeviceSharding(device, memory_kind="device")
    there = sharding.SingleDeviceSharding(device, memory_kind="pinned_host")

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
        return lax.fori_loop(0, layers, one, (x, held))

    return step


def offload_cache(devices: Sequence[Any]) -> parts.Program:
    """Decoding with a cache in the host's memory."""
    cache = parts.on_host(parts.floats(8, 32, 1024, 512), devices[0])
    arguments = cache, parts.floats(8, 512, 512), parts.floats(32, 512), parts.numbers()
    return parts.Program(cache_step(devices[0], 8), arguments, (0,))


def offload_weights(devices: Sequence[Any]) -> parts.Program:
    """Inference with weights in the host's memory, one layer at a time."""
    here = sharding.SingleDeviceSharding(devices[0], memory_kind="device")

    def step(ws: Any, x: Any) -> Any:
        def one(x: Any, layer: Any) -> Any:
            return parts.wide_block(x, jax.device_put(layer, here)), None

        return lax.scan(one, x, ws)[0]

    return parts.Program(
        step, (parts.on_host(parts.block_shapes(1024, 12), devices[0]), parts.floats(4, 512, 1024))
    )


def branches_in_loop(_: Any) -> parts.Program:
    """Layers of two kinds, chosen in a loop, and a training step through them."""

    def step(ps: Any, kinds: Any, x: Any) -> Any:
        def one(x: Any, given: Any) -> Any:
            kind, w = given
            x = lax.cond(
                kind > 0,
                lambda x: parts.feed_forward(x, w, parts.normed),
                lambda x: parts.attention(x, w, 8, parts.normed),
                x,
            )
            return x, x.mean()

        def loss(ps: Any) -> Any:
            x_last, means = lax.scan(one, x, (kinds, ps))
            return (x_last**2).mean() + means.sum()

        return parts.down(jax.grad(loss)(ps), ps)

    return parts.Program(
        step, (parts.block_shapes(512, 6), parts.numbers(6), parts.floats(4, 256, 512)), (0,)
    )


def sampling(_: Any) -> parts.Program:
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

    return parts.Program(
        step, (parts.floats(64, 50304), parts.numbers(64, 512), parts.floats(2, dtype="uint32"))
    )


def speculate(_: Any) -> parts.Program:
    """A small model drafts, a large one judges, until enough tokens are there."""

    def run(small: Any, large: Any, tokens: Any) -> Any:
        def logits(ps: Any, tokens: Any) -> Any:
            layer = partial(parts.block, norm=parts.normed)
            return models.gpt_scan(ps, tokens, layer=layer, norm=lambda x: x)

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

    both = parts.looped(256, 2, 8192), parts.looped(512, 6, 8192)
    return parts.Program(run, (*both, parts.numbers(4, 256)), (2,))


def state_space(_: Any) -> parts.Program:
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

        return parts.down(jax.grad(loss)(ps), ps)

    w = parts.floats(4, 512, 512)
    return parts.Program(step, ({"a": w, "b": w, "c": w}, parts.floats(4, 1024, 512)), (0,))


def alignments(_: Any) -> parts.Program:
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

    return parts.Program(
        step, (parts.floats(256, 1024), parts.floats(16, 400, 256), parts.numbers(16, 128))
    )


def relative_positions(_: Any) -> parts.Program:
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
                x = x + attend(parts.normed(x), parts.normed(x), w, bias)
            for w in ps["decoder"]:
                y = y + attend(parts.normed(y), parts.normed(x), w, bias)
            return parts.cross_entropy(y @ ps["embed"].T, labels)

        return parts.down(jax.grad(loss)(ps), ps)

    shapes = {
        "embed": parts.floats(32128, 512),
        "bias": parts.floats(511, 8),
        "encoder": [parts.floats(4, 512, 512) for _ in range(2)],
        "decoder": [parts.floats(4, 512, 512) for _ in range(2)],
    }
    batch = parts.numbers(16, 256)
    return parts.Program(step, (shapes, batch, batch, batch), (0,))


def histograms(_: Any) -> parts.Program:
    """Statistics of events: counts by scatter, sorted segments, quantiles and joins."""

    def step(keys: Any, amounts: Any, table: Any) -> Any:
        order = jnp.argsort(keys)
        keys, amounts = keys[order], amounts[order]
        sums = jnp.zeros(65536).at[keys].add(amounts)
        counts = jnp.zeros(65536, jnp.int32).at[keys].add(1)
        largest = jnp.full(65536, -1e9).at[keys].max(amounts)
        found = jnp.searchsorted(table, amounts)
        return sums / jnp.maximum(counts, 1), largest, table[found], jnp.quantile(amounts, 0.9)

    return parts.Program(step, (parts.numbers(524288), parts.floats(524288), parts.floats(4096)))
