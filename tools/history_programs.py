"""Small programs whose computations are made by many passes, to learn the order of XLA's lists.

`PROGRAMS` holds for each a function of jax and its arguments' shapes, and how they lie on a mesh of
two by two devices (`x`, `y`) where the program is one of several devices. `tools.record_rules`
compiles them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# One device.


def gather_kinds(jax: Any, x: Any, i: Any, j: Any) -> Any:
    """Gathers along one and two dimensions, clipped, filled and batched."""
    jnp = jax.numpy
    rows = jnp.take(x, i, axis=0, mode="fill"), jnp.take(x, i, axis=1, mode="clip")
    points = x[i, j], jnp.take_along_axis(x, j[None, :] % 8, axis=1)
    batched = jax.vmap(lambda row, at: jax.lax.dynamic_slice(row, (at,), (3,)))(x[:6], i)
    return rows, points, batched, jnp.sum(x[i], axis=0)


def scatter_kinds(jax: Any, x: Any, i: Any, u: Any) -> Any:
    """Scatters with every combiner, of unique and of sorted indices."""
    jnp = jax.numpy
    added = x.at[i].add(u), x.at[i].min(u), x.at[i].max(u), x.at[i].mul(u)
    applied = x.at[i].apply(jnp.sin), x.at[i, i].set(u[:, 0]), x.at[:, i].add(u.T[:, :6].sum(0))
    known = x.at[jnp.sort(i)].add(u, indices_are_sorted=True), x.at[i].set(u, unique_indices=True)
    return added, applied, known


def scatter_in_scan(jax: Any, x: Any, i: Any, u: Any) -> Any:
    """A table that a scan updates at indices, and its gradient."""
    lax, jnp = jax.lax, jax.numpy

    def run(table: Any, updates: Any) -> Any:
        def step(carried: Any, update: Any) -> Any:
            carried = carried.at[i].add(update)
            return carried, jnp.max(carried[i], axis=0)

        last, seen = lax.scan(step, table, updates)
        return jnp.sum(last) + jnp.sum(seen)

    return jax.grad(run, argnums=(0, 1))(x, jnp.stack([u, u * 2, u + 1]))


def complex_sums(jax: Any, x: Any, y: Any) -> Any:
    """Reductions and scans of complex numbers."""
    jnp = jax.numpy
    z = x + 1j * y
    sums = jnp.sum(z, 0), jnp.prod(z, 1), jnp.cumsum(z, 1), jnp.mean(z)
    return sums, jnp.abs(jnp.einsum("ij,kj->ik", z, jnp.conj(z))), jnp.sum(jnp.abs(z), 1)


def complex_loop(jax: Any, x: Any, y: Any, n: Any) -> Any:
    """A loop over complex numbers with a reduction in it, and one of their parts."""
    jnp, lax = jax.numpy, jax.lax

    def body(_: Any, z: Any) -> Any:
        return z * z / (1 + jnp.sum(jnp.abs(z))) + jnp.sum(z, 0)

    z = lax.fori_loop(0, n, body, x + 1j * y)
    return jnp.sum(z, 1), jnp.prod(z, 0), jnp.max(z.real), jnp.sum(z.imag, 0)


def fourier(jax: Any, x: Any) -> Any:
    """Transforms there and back, with a filter and a sum of complex numbers between them."""
    jnp = jax.numpy
    spectrum = jnp.fft.fft2(x)
    power = jnp.sum(jnp.abs(spectrum) ** 2)
    kept = jnp.where(jnp.abs(spectrum) > power / x.size, spectrum, 0)
    return jnp.fft.ifft2(kept).real, jnp.fft.rfft(x, axis=1), jnp.sum(spectrum, 0)


def order_statistics(jax: Any, x: Any, k: Any) -> Any:
    """Medians, percentiles, top-k and ranks."""
    jnp, lax = jax.numpy, jax.lax
    middle = jnp.median(x, axis=1), jnp.percentile(x, jnp.array([5.0, 95.0]), axis=0)
    best = lax.top_k(x, 3), lax.approx_max_k(x, 4), jnp.argsort(jnp.argsort(k, axis=1), axis=1)
    return middle, best, jnp.argmax(x, axis=1), jnp.argmin(k, axis=0), jnp.unique(k, size=16)


def sorted_segments(jax: Any, x: Any, i: Any) -> Any:
    """Sums, products and extremes of segments, after a sort of keys and values."""
    jnp, lax = jax.numpy, jax.lax
    keys, rows = lax.sort((i, x[:, 0]), num_keys=1)
    sums = jax.ops.segment_sum(x, i, 5), jax.ops.segment_prod(x, i, 5)
    ends = jax.ops.segment_max(rows, keys, 5, indices_are_sorted=True), jnp.bincount(i, length=5)
    return sums, ends, jnp.cumsum(rows), jnp.digitize(x, jnp.linspace(-1.0, 1.0, 7))


def scan_of_scan(jax: Any, x: Any, w: Any) -> Any:
    """A scan in a scan with code that does not change, and its gradient."""
    jnp, lax = jax.numpy, jax.lax

    def loss(weights: Any) -> Any:
        def inner(carried: Any, row: Any) -> Any:
            scaled = weights / (1e-3 + jnp.sum(weights**2))
            return jnp.tanh(carried @ scaled + row), jnp.max(carried)

        def outer(carried: Any, row: Any) -> Any:
            carried, seen = lax.scan(inner, carried, jnp.stack([row, row * 2, row - 1]))
            return carried * jnp.exp(-jnp.sum(weights)), jnp.sum(seen)

        last, seen = lax.scan(outer, x[0], x)
        return jnp.sum(last) + jnp.sum(seen)

    return jax.value_and_grad(loss)(w)


def two_nests(jax: Any, x: Any, w: Any, n: Any) -> Any:
    """Two loops with an inner one each, which use the same matrix."""
    jnp, lax = jax.numpy, jax.lax

    def inner(i: Any, carried: Any) -> Any:
        return jnp.sin(carried @ (w * 0.5 + jnp.mean(w))) + i

    def first(i: Any, carried: Any) -> Any:
        return lax.fori_loop(0, i, inner, carried * jnp.max(carried))

    def second(i: Any, carried: Any) -> Any:
        carried = lax.fori_loop(0, i + 1, lambda j, c: c - jnp.cos(c @ w.T) * j, carried)
        return carried + jnp.sum(carried, axis=0)

    return lax.fori_loop(0, n, first, x), lax.fori_loop(0, n, second, x + 1)


def while_with_branches(jax: Any, x: Any, w: Any, n: Any) -> Any:
    """A loop until a norm is small, with branches, a switch and a reduction in its condition."""
    jnp, lax = jax.numpy, jax.lax

    def going(state: Any) -> Any:
        return (state[0] < n) & (jnp.sum(state[1] ** 2) > 1e-6)

    def body(state: Any) -> Any:
        i, carried = state
        branches = [lambda c: c @ w, lambda c: c - jnp.mean(c, 1, keepdims=True), jnp.tanh]
        carried = lax.switch(i % 3, branches, carried)
        return i + 1, lax.cond(jnp.max(carried) > 2, lambda c: c / jnp.max(c), jnp.cos, carried)

    return lax.while_loop(going, body, (0, x))


def cholesky_solve(jax: Any, a: Any, b: Any) -> Any:
    """A Cholesky factor, solves with it, and a determinant."""
    jnp = jax.numpy
    symmetric = a @ a.T + 8 * jnp.eye(a.shape[0])
    factor = jax.scipy.linalg.cho_factor(symmetric)
    logarithm = 2 * jnp.sum(jnp.log(jnp.diagonal(factor[0])))
    return jax.scipy.linalg.cho_solve(factor, b), logarithm, jnp.linalg.cholesky(symmetric)


def least_squares(jax: Any, a: Any, b: Any) -> Any:
    """QR and LU, with solves, and a norm."""
    jnp = jax.numpy
    q, r = jnp.linalg.qr(a)
    solved = jax.scipy.linalg.solve_triangular(r, q.T @ b)
    return solved, jnp.linalg.solve(a.T @ a, a.T @ b), jnp.linalg.norm(a @ solved - b, axis=0)


def eigen(jax: Any, a: Any) -> Any:
    """Eigenvalues and singular values."""
    jnp = jax.numpy
    return jnp.linalg.eigh(a + a.T), jnp.linalg.svd(a, compute_uv=False), jnp.linalg.det(a)


def random_walks(jax: Any, x: Any, n: Any) -> Any:
    """Random numbers of several kinds, in a loop and outside."""
    jnp, lax, random = jax.numpy, jax.lax, jax.random

    def body(_: Any, state: Any) -> Any:
        key, carried = state
        key, one, other = random.split(key, 3)
        carried = carried + random.normal(one, carried.shape) * jnp.std(carried)
        return key, jnp.where(random.bernoulli(other, 0.1, carried.shape), -carried, carried)

    key = random.key(7)
    _, walked = lax.fori_loop(0, n, body, (key, x))
    drawn = random.categorical(key, x, axis=1), random.permutation(key, x)
    return walked, drawn, random.gamma(key, 2.0, (8,)), random.choice(key, x[:, 0], (4,))


def scans_of_all_kinds(jax: Any, x: Any) -> Any:
    """Cumulative sums, products, extremes and logarithms, and associative scans."""
    jnp, lax = jax.numpy, jax.lax

    def combine(one: Any, other: Any) -> Any:
        return one[0] * other[0], one[1] * other[0] + other[1]

    sums = jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cummax(x, axis=1), lax.cummin(x, axis=0)
    linear = lax.associative_scan(combine, (x, x + 1), axis=1)
    return sums, linear, lax.cumlogsumexp(x, axis=1), lax.cumsum(x, axis=1, reverse=True)


def mapped_loops(jax: Any, x: Any, n: Any) -> Any:
    """Loops that vmap runs for rows at once, with lengths of their own."""
    jnp, lax = jax.numpy, jax.lax

    def one(row: Any, count: Any) -> Any:
        def body(state: Any) -> Any:
            i, carried = state
            return i + 1, carried - 0.1 * jnp.sum(carried) * jnp.sin(carried)

        return lax.while_loop(lambda state: state[0] < count, body, (0, row))[1]

    return jax.vmap(one)(x, n), lax.map(lambda row: jnp.sort(row) / jnp.max(row), x)


def functions_with_loops(jax: Any, x: Any, w: Any) -> Any:
    """A function with a scan, called three times, from a loop as well."""
    jnp, lax = jax.numpy, jax.lax

    def body(carried: Any, weights: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            return jnp.tanh(state @ weights) + row, jnp.sum(state)

        last, sums = lax.scan(step, carried, jnp.stack([carried, carried * 2]))
        return last - jnp.max(sums)

    body.__name__ = "layer"
    layer = jax.jit(body)
    looped = lax.fori_loop(0, 3, lambda i, c: layer(c, w) + i, x)
    return layer(x, w), layer(looped, w.T), looped


def own_gradient(jax: Any, x: Any, w: Any) -> Any:
    """A function with a derivative of its own, used in a loop that saves memory."""
    jnp, lax = jax.numpy, jax.lax

    clipped = jax.custom_vjp(lambda value: jnp.clip(value, -1, 1))
    clipped.defvjp(lambda value: (clipped(value), value), lambda value, g: (g * jnp.sign(value),))

    def step(carried: Any, weights: Any) -> Any:
        hidden = jax.nn.softmax(clipped(carried @ weights), axis=-1)
        return hidden, jax.nn.logsumexp(hidden, axis=-1)

    def loss(weights: Any) -> Any:
        last, norms = lax.scan(jax.checkpoint(step), x, weights)
        return jnp.sum(last**2) + jnp.mean(norms)

    return jax.grad(loss)(jnp.stack([w, w + 1, w * 2]))


def convolution_gradient(jax: Any, x: Any, k: Any) -> Any:
    """Convolutions, grouped and strided, pooling and normalisation, with gradients."""
    jnp, lax = jax.numpy, jax.lax
    names = ("NHWC", "HWIO", "NHWC")

    def loss(image: Any, kernel: Any) -> Any:
        hidden = lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=names)
        hidden = (hidden - jnp.mean(hidden, (0, 1, 2))) / (1e-3 + jnp.std(hidden, (0, 1, 2)))
        pooled = lax.reduce_window(hidden, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        grouped = lax.conv_general_dilated(
            pooled, kernel[:, :, :1], (2, 2), "SAME", dimension_numbers=names, feature_group_count=8
        )
        return jnp.mean(jax.nn.relu(grouped) ** 2)

    return jax.value_and_grad(loss, argnums=(0, 1))(x, k)


def pooling_gradient(jax: Any, x: Any, k: Any) -> Any:
    """The gradients of a grouped convolution and of pooling."""
    jnp, lax = jax.numpy, jax.lax

    def loss(image: Any, kernel: Any) -> Any:
        window = (1, 2, 2, 1)
        pooled = lax.reduce_window(image, -jnp.inf, lax.max, window, window, "VALID")
        grouped = lax.conv_general_dilated(
            pooled,
            kernel,
            (2, 2),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=image.shape[-1],
        )
        return jnp.mean(grouped**2)

    return jax.grad(loss, argnums=(0, 1))(x, k)


def classifier_step(jax: Any, x: Any, w: Any, labels: Any) -> Any:
    """A step of training in bfloat16: logits, cross entropy, accuracy, Adam."""
    jnp = jax.numpy

    def loss(weights: Any) -> Any:
        logits = (x.astype(jnp.bfloat16) @ weights.astype(jnp.bfloat16)).astype(jnp.float32)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        hits = jnp.argmax(logits, axis=1) == labels
        return -jnp.mean(chosen), jnp.mean(hits.astype(jnp.float32))

    (value, accuracy), gradient = jax.value_and_grad(loss, has_aux=True)(w)
    norm = jnp.sqrt(jnp.sum(gradient**2))
    return value, accuracy, w - 0.1 * gradient / jnp.maximum(norm, 1.0), norm


def decode_loop(jax: Any, cache: Any, w: Any, n: Any) -> Any:
    """Greedy decoding into a cache, with a top-k of the last step."""
    jnp, lax = jax.numpy, jax.lax

    def body(i: Any, state: Any) -> Any:
        keys, token = state
        query = w[token]
        scores = jax.nn.softmax(jnp.where(jnp.arange(keys.shape[0]) <= i, keys @ query, -1e9))
        keys = lax.dynamic_update_slice(keys, (scores @ keys + query)[None], (i, 0))
        return keys, jnp.argmax(w @ keys[i])

    keys, token = lax.fori_loop(0, n, body, (cache, jnp.int32(0)))
    return keys, token, lax.top_k(w @ keys[-1], 5)


def gamma_numbers(jax: Any, x: Any) -> Any:
    """Numbers that are drawn until one is accepted, in a loop in a loop."""
    return jax.random.gamma(jax.random.key(7), jax.numpy.exp(x))


def branches_with_rows(jax: Any, x: Any, w: Any, i: Any) -> Any:
    """Branches of which some use a row twice, so that two fusions become one with two results."""
    jnp, lax = jax.numpy, jax.lax

    def twice(table: Any, by: Any) -> Any:
        row = jnp.tanh(lax.dynamic_slice(table, (i, 0), (1, table.shape[1])) + by)
        return row @ w, (1 - row) * (1 + row), row

    def once(table: Any, by: Any) -> Any:
        row = jnp.cos(table[:1] * by)
        return jnp.sin(row @ w) @ w, row - jnp.max(row), row * jnp.sum(table, axis=0)

    branches = [lambda t: twice(t, 2.0), lambda t: once(t, 3.0), lambda t: once(t @ w, 5.0)]
    return lax.switch(i, branches, x), jnp.sum(jnp.exp(x @ w), axis=1)


def points_of_table(jax: Any, x: Any, i: Any) -> Any:
    """A scatter to many points of a large table, beside a function that is called twice."""
    jnp = jax.numpy
    rows = jnp.arange(x.shape[0])[:, None]
    sums = jnp.cumsum(x[:, :128], axis=1), jnp.cumsum(x[:, 128:256], axis=1)
    return x.at[rows, i].add(1.0), sums


def sorts_and_sums(jax: Any, x: Any, i: Any) -> Any:
    """Stable sorts that share a comparator, a top-k in a loop, and sums of narrow numbers."""
    jnp, lax = jax.numpy, jax.lax
    both = jnp.argsort(x, axis=1), jnp.argsort(x * 2, axis=1)
    looped = lax.fori_loop(0, 3, lambda k, c: c + lax.top_k(x + k, 4)[0], x[:, :4])
    narrow = jnp.sum(x.astype(jnp.bfloat16), axis=1), jnp.prod(x.astype(jnp.bfloat16), axis=0)
    return both, looped, narrow, jnp.take(x, i, axis=0, mode="fill")


def deep_loops(jax: Any, x: Any, n: Any) -> Any:
    """Loops in loops, deeper than the search for an order of computations goes."""
    jnp, lax = jax.numpy, jax.lax

    def nested(depth: int, carried: Any) -> Any:
        if depth == 0:
            return jnp.tanh(carried) + jnp.max(carried, axis=0)

        def body(i: Any, inner: Any) -> Any:
            return nested(depth - 1, jnp.sin(inner) + i) * jnp.sum(inner)

        return lax.fori_loop(0, n, body, carried)

    return nested(8, x), jnp.cumsum(x, 0)


def deep_products(jax: Any, x: Any, w: Any, n: Any) -> Any:
    """Loops in loops whose code partly does not change, so that passes make them anew."""
    jnp, lax = jax.numpy, jax.lax

    def nested(depth: int, carried: Any) -> Any:
        if depth == 0:
            return jnp.tanh(carried @ (w + jnp.mean(w))) + jnp.max(carried, axis=0)

        def body(i: Any, inner: Any) -> Any:
            scale = jnp.exp(-jnp.sum(w) * depth)
            return nested(depth - 1, jnp.sin(inner) * scale + i) - jnp.std(inner)

        return lax.fori_loop(0, n if depth % 2 else 3, body, carried)

    return nested(7, x), jnp.cumsum(x, 0)


# Four devices.


def split_embedding(jax: Any, table: Any, i: Any, w: Any) -> Any:
    """An embedding that is spread by rows, with its gradient."""
    jnp = jax.numpy

    def loss(rows: Any, weights: Any) -> Any:
        return jnp.mean(jnp.tanh(rows[i] @ weights) ** 2)

    return jax.grad(loss, argnums=(0, 1))(table, w)


def split_scatters(jax: Any, x: Any, i: Any, u: Any) -> Any:
    """Scatters with several combiners into what is spread."""
    jnp = jax.numpy
    sums = jax.ops.segment_sum(u, i, 16), x.at[i].max(u), x.at[i].min(u)
    return sums, jnp.zeros((64,)).at[i].add(u[:, 0]), x.at[:, i % 8].mul(2.0)


def split_experts(jax: Any, x: Any, gates: Any, w: Any) -> Any:
    """Experts: top-2 routing, dispatch by one-hot, products of experts, combination."""
    jnp, lax = jax.numpy, jax.lax
    weights, chosen = lax.top_k(jax.nn.softmax(x @ gates), 2)
    routed = jax.nn.one_hot(chosen, w.shape[0]) * weights[..., None]
    place = jnp.cumsum(jnp.sum(routed, 1), axis=0)
    inside = jnp.einsum("tke,td->etd", routed, x)
    return jnp.einsum("etf->tf", jax.nn.gelu(jnp.einsum("etd,edf->etf", inside, w))), place


def split_attention(jax: Any, x: Any, w: Any) -> Any:
    """Attention with heads and sequence spread, and its gradient."""
    jnp = jax.numpy

    def loss(weights: Any) -> Any:
        q, k, v = (jnp.einsum("btd,dhf->bthf", x, weights[p]) for p in range(3))
        scores = jnp.einsum("bthf,bshf->bhts", q, k)
        kept = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
        return jnp.mean(jnp.einsum("bhts,bshf->bthf", jax.nn.softmax(kept), v) ** 2)

    return jax.value_and_grad(loss)(w)


def split_scan(jax: Any, x: Any, w: Any) -> Any:
    """Layers in a scan, weights and rows spread, trained for a step in bfloat16."""
    jnp, lax = jax.numpy, jax.lax

    def loss(weights: Any) -> Any:
        def layer(hidden: Any, weight: Any) -> Any:
            hidden = hidden + jax.nn.relu(hidden @ weight.astype(jnp.bfloat16))
            return hidden / (1 + jnp.max(jnp.abs(hidden), -1, keepdims=True)), None

        hidden, _ = lax.scan(layer, x.astype(jnp.bfloat16), weights)
        return jnp.mean(hidden.astype(jnp.float32) ** 2)

    value, gradient = jax.value_and_grad(loss)(w)
    return value, w - 0.1 * gradient, jnp.sqrt(jnp.sum(gradient**2))


def split_sort(jax: Any, x: Any, k: Any) -> Any:
    """Sorts, medians and ranks along what is spread and along what is not."""
    jnp, lax = jax.numpy, jax.lax
    ranks = jnp.argsort(x, axis=0), jnp.sort(k, axis=1), jnp.median(x, axis=0)
    return ranks, lax.top_k(x[:, 0], 3), jnp.argmax(x, axis=0), jnp.cumsum(x, axis=0)


def split_statistics(jax: Any, x: Any, y: Any) -> Any:
    """Means, deviations, covariances, extremes and norms across devices."""
    jnp = jax.numpy
    centred = x - jnp.mean(x, 0)
    scaled = centred / (1e-6 + jnp.std(x, 0))
    ends = jnp.max(x), jnp.min(y, 0), jnp.prod(y), jnp.any(x > 3), jnp.all(y < 3, 1)
    return scaled.T @ scaled, ends, jnp.linalg.norm(x, axis=1), jnp.sum(x + 1j * y, 0)


def split_ring(jax: Any, x: Any, w: Any) -> Any:
    """What each device has, sent around in a loop, gathered, scattered and exchanged."""
    jnp, lax = jax.numpy, jax.lax
    mesh, spec = jax.typeof(x).sharding.mesh, jax.sharding.PartitionSpec

    def inside(block: Any, weights: Any) -> Any:
        def hop(_: Any, state: Any) -> Any:
            held, total = state
            held = lax.ppermute(held, "x", [(0, 1), (1, 0)])
            return held, total + jnp.tanh(held @ weights)

        _, total = lax.fori_loop(0, 2, hop, (block, block))
        whole = lax.all_gather(total, "x", tiled=True)
        parts = lax.psum_scatter(whole, "x", tiled=True) + lax.pmean(total, "y")
        return lax.all_to_all(parts, "y", 1, 0, tiled=True), lax.pmax(jnp.max(total), ("x", "y"))

    specs = spec("x", None), spec(None, None)
    result = spec(("x", "y"), None), spec()
    mapped = jax.shard_map(inside, mesh=mesh, in_specs=specs, out_specs=result, check_vma=False)
    return mapped(x, w)


def split_loop(jax: Any, x: Any, i: Any, n: Any) -> Any:
    """A loop over what is spread: gathers, scatters, a branch and a norm."""
    jnp, lax = jax.numpy, jax.lax

    def body(step: Any, carried: Any) -> Any:
        carried = carried.at[i].add(jnp.sum(carried, 0))
        carried = lax.cond(step > 1, lambda c: c / jnp.linalg.norm(c), jnp.tanh, carried)
        return carried + carried[(i + step) % 8].mean(0)

    return lax.fori_loop(0, n, body, x)


def split_convolution(jax: Any, x: Any, k: Any) -> Any:
    """A convolution whose rows are spread, with pooling, and its gradient."""
    jnp, lax = jax.numpy, jax.lax

    def loss(image: Any, kernel: Any) -> Any:
        names = ("NHWC", "HWIO", "NHWC")
        hidden = lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=names)
        pooled = lax.reduce_window(hidden, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
        return jnp.mean(jnp.max(jax.nn.relu(pooled), axis=3))

    return jax.grad(loss, argnums=(0, 1))(x, k)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...], tuple[tuple[Any, ...], ...]]] = {
    "gather_kinds": (gather_kinds, ("f32 64 8", "s32 6", "s32 6"), ()),
    "scatter_kinds": (scatter_kinds, ("f32 64 8", "s32 6", "f32 6 8"), ()),
    "scatter_in_scan": (scatter_in_scan, ("f32 64 8", "s32 6", "f32 6 8"), ()),
    "complex_sums": (complex_sums, ("f32 16 32", "f32 16 32"), ()),
    "complex_loop": (complex_loop, ("f32 16 32", "f32 16 32", "s32"), ()),
    "fourier": (fourier, ("f32 16 32",), ()),
    "order_statistics": (order_statistics, ("f32 32 128", "s32 32 128"), ()),
    "sorted_segments": (sorted_segments, ("f32 64 8", "s32 64"), ()),
    "scan_of_scan": (scan_of_scan, ("f32 8 32", "f32 32 32"), ()),
    "two_nests": (two_nests, ("f32 16 32", "f32 32 32", "s32"), ()),
    "while_with_branches": (while_with_branches, ("f32 16 32", "f32 32 32", "s32"), ()),
    "cholesky_solve": (cholesky_solve, ("f32 16 16", "f32 16 4"), ()),
    "least_squares": (least_squares, ("f32 32 16", "f32 32 4"), ()),
    "eigen": (eigen, ("f32 8 8",), ()),
    "random_walks": (random_walks, ("f32 16 32", "s32"), ()),
    "scans_of_all_kinds": (scans_of_all_kinds, ("f32 16 64",), ()),
    "mapped_loops": (mapped_loops, ("f32 16 32", "s32 16"), ()),
    "functions_with_loops": (functions_with_loops, ("f32 16 32", "f32 32 32"), ()),
    "own_gradient": (own_gradient, ("f32 16 32", "f32 32 32"), ()),
    "convolution_gradient": (convolution_gradient, ("f32 2 16 16 4", "f32 3 3 4 8"), ()),
    "pooling_gradient": (pooling_gradient, ("f32 2 16 16 8", "f32 3 3 1 8"), ()),
    "classifier_step": (classifier_step, ("f32 64 128", "f32 128 10", "s32 64"), ()),
    "decode_loop": (decode_loop, ("f32 64 32", "f32 128 32", "s32"), ()),
    "gamma_numbers": (gamma_numbers, ("f32 8",), ()),
    "branches_with_rows": (branches_with_rows, ("f32 64 256", "f32 256 256", "s32"), ()),
    "points_of_table": (points_of_table, ("f32 64 16384", "s32 64 512"), ()),
    "sorts_and_sums": (sorts_and_sums, ("f32 16 64", "s32 8"), ()),
    "deep_loops": (deep_loops, ("f32 8 16", "s32"), ()),
    "deep_products": (deep_products, ("f32 8 16", "f32 16 16", "s32"), ()),
    "split_embedding": (
        split_embedding,
        ("f32 512 64", "s32 32 16", "f32 64 64"),
        (("x", None), ("y", None), (None, "y")),
    ),
    "split_scatters": (
        split_scatters,
        ("f32 64 8", "s32 32", "f32 32 8"),
        (("x", None), ("y",), ("y", None)),
    ),
    "split_experts": (
        split_experts,
        ("f32 64 32", "f32 32 8", "f32 8 32 64"),
        (("x", None), (), ("y", None, None)),
    ),
    "split_attention": (
        split_attention,
        ("f32 4 32 64", "f32 3 64 8 16"),
        (("x", None, None), (None, None, "y", None)),
    ),
    "split_scan": (
        split_scan,
        ("f32 32 64", "f32 4 64 64"),
        (("x", None), (None, "x", "y")),
    ),
    "split_sort": (split_sort, ("f32 64 32", "s32 64 32"), (("x", "y"), ("x", "y"))),
    "split_statistics": (split_statistics, ("f32 64 32", "f32 64 32"), (("x", "y"), ("x", None))),
    "split_ring": (split_ring, ("f32 64 32", "f32 32 32"), (("x", None), (None, None))),
    "split_loop": (split_loop, ("f32 64 8", "s32 16", "s32"), (("x", "y"), (), ())),
    "split_convolution": (
        split_convolution,
        ("f32 2 32 16 4", "f32 3 3 4 8"),
        ((None, "x", None, None), (None, None, None, "y")),
    ),
}
