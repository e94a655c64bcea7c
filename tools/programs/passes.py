"""Small programs whose computations are made by many passes, to learn in which order they stand.

`PROGRAMS` holds for each a function of jax and its arguments' shapes, and how they lie on a mesh of
two by two devices (`x`, `y`) where the program is one of several devices. `tools.record_rules`
compiles them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# One device.


def complex_loop(jax: Any, x: Any, y: Any, n: Any) -> Any:
    """A loop over complex numbers with a reduction in it, and one of their parts."""
    jnp, lax = jax.numpy, jax.lax

    def body(_: Any, z: Any) -> Any:
        return z * z / (1 + jnp.sum(jnp.abs(z))) + jnp.sum(z, 0)

    z = lax.fori_loop(0, n, body, x + 1j * y)
    return jnp.sum(z, 1), jnp.prod(z, 0), jnp.max(z.real), jnp.sum(z.imag, 0)


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


def cholesky_solve(jax: Any, a: Any, b: Any) -> Any:
    """A Cholesky factor, solves with it, and a determinant."""
    jnp = jax.numpy
    symmetric = a @ a.T + 8 * jnp.eye(a.shape[0])
    factor = jax.scipy.linalg.cho_factor(symmetric)
    logarithm = 2 * jnp.sum(jnp.log(jnp.diagonal(factor[0])))
    return jax.scipy.linalg.cho_solve(factor, b), logarithm, jnp.linalg.cholesky(symmetric)


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


# Four devices.


def split_scatters(jax: Any, x: Any, i: Any, u: Any) -> Any:
    """Scatters with several combiners into what is spread."""
    jnp = jax.numpy
    sums = jax.ops.segment_sum(u, i, 16), x.at[i].max(u), x.at[i].min(u)
    return sums, jnp.zeros((64,)).at[i].add(u[:, 0]), x.at[:, i % 8].mul(2.0)


def split_statistics(jax: Any, x: Any, y: Any) -> Any:
    """Means, deviations, covariances, extremes and norms across devices."""
    jnp = jax.numpy
    centred = x - jnp.mean(x, 0)
    scaled = centred / (1e-6 + jnp.std(x, 0))
    ends = jnp.max(x), jnp.min(y, 0), jnp.prod(y), jnp.any(x > 3), jnp.all(y < 3, 1)
    return scaled.T @ scaled, ends, jnp.linalg.norm(x, axis=1), jnp.sum(x + 1j * y, 0)


def split_loop(jax: Any, x: Any, i: Any, n: Any) -> Any:
    """A loop over what is spread: gathers, scatters, a branch and a norm."""
    jnp, lax = jax.numpy, jax.lax

    def body(step: Any, carried: Any) -> Any:
        carried = carried.at[i].add(jnp.sum(carried, 0))
        carried = lax.cond(step > 1, lambda c: c / jnp.linalg.norm(c), jnp.tanh, carried)
        return carried + carried[(i + step) % 8].mean(0)

    return lax.fori_loop(0, n, body, x)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...], tuple[tuple[Any, ...], ...]]] = {
    "complex_loop": (complex_loop, ("f32 16 32", "f32 16 32", "s32"), ()),
    "two_nests": (two_nests, ("f32 16 32", "f32 32 32", "s32"), ()),
    "cholesky_solve": (cholesky_solve, ("f32 16 16", "f32 16 4"), ()),
    "functions_with_loops": (functions_with_loops, ("f32 16 32", "f32 32 32"), ()),
    "convolution_gradient": (convolution_gradient, ("f32 2 16 16 4", "f32 3 3 4 8"), ()),
    "pooling_gradient": (pooling_gradient, ("f32 2 16 16 8", "f32 3 3 1 8"), ()),
    "branches_with_rows": (branches_with_rows, ("f32 64 256", "f32 256 256", "s32"), ()),
    "points_of_table": (points_of_table, ("f32 64 16384", "s32 64 512"), ()),
    "sorts_and_sums": (sorts_and_sums, ("f32 16 64", "s32 8"), ()),
    "deep_loops": (deep_loops, ("f32 8 16", "s32"), ()),
    "split_scatters": (
        split_scatters,
        ("f32 64 8", "s32 32", "f32 32 8"),
        (("x", None), ("y",), ("y", None)),
    ),
    "split_statistics": (split_statistics, ("f32 64 32", "f32 64 32"), (("x", "y"), ("x", None))),
    "split_loop": (split_loop, ("f32 64 8", "s32 16", "s32"), (("x", "y"), (), ())),
}
