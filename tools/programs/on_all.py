"""Programs over all devices of a host; `tools.programs.production` has them all."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tools.programs import models, parts
from tools.programs.parts import P, jax, jnp, lax

if TYPE_CHECKING:
    from collections.abc import Sequence


def fsdp_gpt(devices: Sequence[Any]) -> parts.Program:
    """A language model whose parameters, state and batch are sharded alike."""
    mesh = parts.mesh_of(devices, "d")

    def step(state: Any, tokens: Any, labels: Any) -> Any:
        return parts.adam(jax.grad(models.language_loss)(state[0], tokens, labels), state)

    model = {
        "embed": parts.laid(mesh, parts.floats(32768, 1024), P("d")),
        "layers": parts.laid(mesh, parts.block_shapes(1024, 8), P(None, "d")),
    }
    batch = parts.laid(mesh, parts.numbers(16, 512), P("d"))
    return parts.Program(step, ((model, model, model), batch, batch), (0,))


def tensor_parallel_gpt(devices: Sequence[Any]) -> parts.Program:
    """A language model over data and model axes."""
    mesh = parts.mesh_of(devices, "d", "m")
    layers = parts.block_shapes(1024, 4, dtype="bfloat16")
    laid = {
        "qkv": parts.laid(mesh, layers["qkv"], P(None, None, "m")),
        "out": parts.laid(mesh, layers["out"], P(None, "m")),
        "up": parts.laid(mesh, layers["up"], P(None, None, "m")),
        "down": parts.laid(mesh, layers["down"], P(None, "m")),
    }
    model = {"embed": parts.laid(mesh, parts.halves(32768, 1024), P("m")), "layers": laid}
    batch = parts.laid(mesh, parts.numbers(8, 1024), P("d"))

    def step(ps: Any, tokens: Any, labels: Any) -> Any:
        return parts.down(jax.grad(models.language_loss)(ps, tokens, labels), ps)

    return parts.Program(step, (model, batch, batch), (0,))


def experts_exchanged(devices: Sequence[Any]) -> parts.Program:
    """Experts on different devices; tokens travel by all-to-all; a training step."""
    mesh = parts.mesh_of(devices, "d")
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

    mapped = parts.on_each(layer, mesh, (P(), P("d"), P("d"), P("d")), P("d"))

    def step(ps: Any, x: Any) -> Any:
        return parts.down(jax.grad(lambda ps: (mapped(*ps, x) ** 2).mean())(ps), ps)

    shapes = (
        parts.laid(mesh, parts.floats(512, count), P()),
        parts.laid(mesh, parts.floats(count, 512, 2048), P("d")),
        parts.laid(mesh, parts.floats(count, 2048, 512), P("d")),
    )
    return parts.Program(
        step, (shapes, parts.laid(mesh, parts.floats(1024 * count, 512), P("d"))), (0,)
    )


def ring_attention(devices: Sequence[Any]) -> parts.Program:
    """Attention over a sharded sequence: keys and values go round; a gradient through it."""
    mesh = parts.mesh_of(devices, "s")
    count = len(devices)
    ring = [(one, (one + 1) % count) for one in range(count)]

    def attend(q: Any, k: Any, v: Any) -> Any:
        def one(carried: Any, _: Any) -> Any:
            k, v, *state = carried
            scores = jnp.einsum("bthd,bshd->bhts", q, k) / 8
            mix = partial(jnp.einsum, "bhts,bshd->bhtd")
            state = parts.run_softmax(state, scores, lambda weight: mix(weight, v))
            return (*(lax.ppermute(t, "s", ring) for t in (k, v)), *state), None

        b, t, h, d = q.shape
        start = jnp.full((b, h, t), -1e9), jnp.zeros((b, h, t)), jnp.zeros((b, h, t, d))
        (_, _, _, total, mixed), _ = lax.scan(one, (k, v, *start), None, length=count)
        return (mixed / total[..., None]).swapaxes(1, 2)

    spec = P(None, "s")
    mapped = parts.on_each(attend, mesh, (spec, spec, spec), spec)

    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            q, k, v = (p.reshape(*x.shape[:2], 8, 64) for p in jnp.split(x @ w, 3, -1))
            return (mapped(q, k, v) ** 2).mean()

        return parts.down(jax.grad(loss)(w), w)

    x = parts.laid(mesh, parts.floats(2, 1024 * count, 512), spec)
    return parts.Program(step, (parts.laid(mesh, parts.floats(512, 1536), P()), x), (0,))


def ring_forward(devices: Sequence[Any]) -> parts.Program:
    """Layers of ring attention in bfloat16, a loop in a loop, inference."""
    mesh = parts.mesh_of(devices, "s")
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

    mapped = parts.on_each(run, mesh, (P("s"), P()), P("s"))
    x = parts.laid(mesh, parts.halves(2048 * count, 512), P("s"))
    return parts.Program(mapped, (x, parts.laid(mesh, parts.halves(4, 512, 1536), P())), (0,))


def pipeline(devices: Sequence[Any]) -> parts.Program:
    """Stages on different devices; small batches pass from one to the next; trained."""
    mesh = parts.mesh_of(devices, "p")
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

    mapped = parts.on_each(run, mesh, (P("p"), P()), P())

    def step(ws: Any, xs: Any) -> Any:
        return parts.down(jax.grad(lambda ws: (mapped(ws, xs) ** 2).mean())(ws), ws)

    ws = parts.laid(mesh, parts.floats(count, 2, 1024, 1024), P("p"))
    return parts.Program(step, (ws, parts.laid(mesh, parts.floats(8, 256, 1024), P())), (0,))


def sharded_words(devices: Sequence[Any]) -> parts.Program:
    """A table of words sharded by rows, looked up, trained with Adam."""
    mesh = parts.mesh_of(devices, "d", "m")

    def step(state: Any, tokens: Any, labels: Any) -> Any:
        def loss(ps: Any) -> Any:
            x = jnp.tanh(ps["embed"][tokens] @ ps["w"])
            return parts.cross_entropy(x @ ps["out"], labels)

        return parts.adam(jax.grad(loss)(state[0]), state)

    model = {
        "embed": parts.laid(mesh, parts.floats(131072, 512), P("m")),
        "w": parts.laid(mesh, parts.floats(512, 512), P()),
        "out": parts.laid(mesh, parts.floats(512, 16384), P(None, "m")),
    }
    batch = parts.laid(mesh, parts.numbers(16, 256), P("d"))
    return parts.Program(step, ((model, model, model), batch, batch), (0,))


def dlrm_sharded(devices: Sequence[Any]) -> parts.Program:
    """Tables on different devices, rows exchanged, the rest in data parallel."""
    mesh = parts.mesh_of(devices, "d")
    count = len(devices)

    def local(table: Any, ids: Any, dense: Any, w: Any) -> Any:
        rows = table[0][ids[0]].sum(1)
        mine = lax.all_to_all(rows.reshape(count, -1, rows.shape[-1]), "d", 0, 1, tiled=True)
        mine = mine.reshape(dense.shape[0], -1)
        return jax.nn.relu(jnp.concatenate([dense, mine], 1) @ w)

    mapped = parts.on_each(local, mesh, (P("d"), P("d"), P("d"), P()), P("d"))

    def step(ps: Any, ids: Any, dense: Any) -> Any:
        def loss(ps: Any) -> Any:
            return (mapped(ps["table"], ids, dense, ps["w"]) ** 2).mean()

        return parts.down(jax.grad(loss)(ps), ps)

    shapes = {
        "table": parts.laid(mesh, parts.floats(count, 200000, 64), P("d")),
        "w": parts.laid(mesh, parts.floats(64 + 64 * count, 256), P()),
    }
    ids = parts.laid(mesh, parts.numbers(count, 1024 * count, 8), P("d"))
    return parts.Program(
        step, (shapes, ids, parts.laid(mesh, parts.floats(1024 * count, 64), P("d"))), (0,)
    )


def graph_gradient(devices: Sequence[Any]) -> Any:
    """Gradients of a network over graphs, one graph a device, summed."""

    def local(ws: Any, nodes: Any, sources: Any, targets: Any) -> Any:
        def loss(ws: Any) -> Any:
            x = nodes[0]
            for w in ws:
                x = jax.nn.relu(parts.sum_edges(x, sources[0], targets[0]) @ w)
            return (x**2).mean()

        return lax.pmean(jax.grad(loss)(ws), "d")

    specs = (P(), P("d"), P("d"), P("d"))
    return parts.on_each(local, parts.mesh_of(devices, "d"), specs, P())


def graph_shapes(devices: Sequence[Any], nodes: int, edges: int) -> tuple[Any, ...]:
    """Its arguments: weights, nodes, and both ends of edges."""
    mesh, count = parts.mesh_of(devices, "d"), len(devices)
    ws = parts.laid(mesh, [parts.floats(256, 256), parts.floats(256, 256)], P())
    ends = parts.laid(mesh, parts.numbers(count, edges), P("d"))
    return ws, parts.laid(mesh, parts.floats(count, nodes, 256), P("d")), ends, ends


def graphs_parallel(devices: Sequence[Any]) -> parts.Program:
    """Batches of graphs, one a device, gradients summed."""
    gradient = graph_gradient(devices)

    def step(ws: Any, *graph: Any) -> Any:
        return parts.down(gradient(ws, *graph), ws)

    return parts.Program(step, graph_shapes(devices, 8192, 65536), (0,))


def fsdp_offload(devices: Sequence[Any]) -> parts.Program:
    """Sharded parameters, moments in the host's memory, residuals offloaded."""
    mesh = parts.mesh_of(devices, "d")
    spec = P(None, "d")
    layers = parts.laid(mesh, parts.block_shapes(1024, 6), spec)
    moment = parts.laid(mesh, parts.block_shapes(1024, 6), spec, "pinned_host")
    here = jax.tree.map(lambda s: s.sharding, layers)
    there = jax.tree.map(lambda s: s.sharding, moment)

    def step(ps: Any, moment: Any, x: Any) -> Any:
        def loss(ps: Any) -> Any:
            return (lax.scan(parts.offloading(parts.wide_block), x, ps)[0] ** 2).mean()

        gradients = jax.grad(loss)(ps)
        held = jax.device_put(moment, here)
        held = jax.tree.map(lambda m, g: 0.9 * m + g, held, gradients)
        return parts.down(held, ps), jax.device_put(held, there)

    x = parts.laid(mesh, parts.floats(2 * len(devices), 512, 1024), P("d"))
    return parts.Program(step, (layers, moment, x), (0, 1))


def overlapped_products(devices: Sequence[Any]) -> parts.Program:
    """Products with gathered and scattered operands, for collectives to hide in."""
    mesh = parts.mesh_of(devices, "d")

    def local(x: Any, ups: Any, downs: Any) -> Any:
        def one(x: Any, w: Any) -> Any:
            whole = lax.all_gather(x, "d", axis=0, tiled=True)
            inner = jax.nn.gelu(whole @ w[0])
            return x + lax.psum_scatter(inner @ w[1], "d", scatter_dimension=0, tiled=True), None

        return lax.scan(one, x, (ups, downs))[0]

    specs = (P("d"), P(None, None, "d"), P(None, "d"))
    mapped = parts.on_each(local, mesh, specs, P("d"))

    def step(ws: Any, x: Any) -> Any:
        return parts.down(jax.grad(lambda ws: (mapped(x, *ws) ** 2).mean())(ws), ws)

    ws = (
        parts.laid(mesh, parts.floats(4, 1024, 4096), specs[1]),
        parts.laid(mesh, parts.floats(4, 4096, 1024), specs[2]),
    )
    return parts.Program(step, (ws, parts.laid(mesh, parts.floats(4096, 1024), P("d"))), (0,))


def sharded_cache(devices: Sequence[Any]) -> parts.Program:
    """Decoding with caches sharded by heads, tokens sampled, in a loop."""
    mesh = parts.mesh_of(devices, "d", "m")

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
        "embed": parts.laid(mesh, parts.floats(32768, 1024), P("m")),
        "qkv": parts.laid(mesh, parts.floats(1024, 3072), P(None, "m")),
    }
    held = parts.laid(mesh, parts.floats(16, 1024, 16, 64), P("d", None, "m"))
    return parts.Program(
        run, (model, (held, held), parts.laid(mesh, parts.numbers(16), P("d"))), (1,)
    )


def sharded_optimizer(devices: Sequence[Any]) -> parts.Program:
    """Gradients scattered, moments sharded, parameters gathered again."""
    mesh = parts.mesh_of(devices, "d")

    def local(ws: Any, moment: Any, x: Any) -> Any:
        def loss(ws: Any) -> Any:
            y = x
            for w in ws:
                y = jnp.tanh(y @ w)
            return (y**2).mean()

        gradients = jax.grad(loss)(ws)
        shares = [lax.psum_scatter(g, "d", scatter_dimension=0, tiled=True) for g in gradients]
        moment = [0.9 * m + p for m, p in zip(moment, shares, strict=True)]
        moved = [lax.all_gather(m, "d", axis=0, tiled=True) for m in moment]
        return parts.down(moved, ws), moment

    specs = (P(), P("d"), P("d"))
    mapped = parts.on_each(local, mesh, specs, (P(), P("d")))
    ws = parts.laid(mesh, [parts.floats(2048, 2048) for _ in range(4)], P())
    moment = parts.laid(mesh, [parts.floats(2048, 2048) for _ in range(4)], P("d"))
    x = parts.laid(mesh, parts.floats(512 * len(devices), 2048), P("d"))
    return parts.Program(mapped, (ws, moment, x), (0, 1))


def sharded_ranking(devices: Sequence[Any]) -> parts.Program:
    """Candidates ranked over all devices: local top-k, gathered, sorted again."""
    mesh = parts.mesh_of(devices, "d")

    def local(queries: Any, items: Any, ids: Any) -> Any:
        best, which = lax.top_k(queries @ items.T, 128)
        best, which = (lax.all_gather(t, "d", axis=1, tiled=True) for t in (best, ids[which]))
        order = jnp.argsort(-best, -1)[:, :128]
        return jnp.take_along_axis(which, order, -1), jnp.take_along_axis(best, order, -1)

    mapped = parts.on_each(local, mesh, (P(), P("d"), P("d")), (P(), P()))
    items = parts.laid(mesh, parts.floats(65536 * len(devices), 64), P("d"))
    ids = parts.laid(mesh, parts.numbers(65536 * len(devices)), P("d"))
    return parts.Program(mapped, (parts.laid(mesh, parts.floats(256, 64), P()), items, ids))
