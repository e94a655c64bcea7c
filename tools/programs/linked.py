"""Programs for `tools.measure_links`, written after `hlomem link` was: fifteen kinds of steps.

Each is quick to compile, and needs more than 100 MB in HBM; `batch` scales what it works on.
`program` is a factory for `hlomem compile` and `hlomem link`.
"""

from __future__ import annotations

from typing import Any

from tools.programs.large import LARGE_PROGRAMS
from tools.programs.parts import floats, jax, jnp, numbers
from tools.programs.small import PROGRAMS


def apart(*values: Any) -> Any:
    """The same values, which no fusion may cross."""
    held = jax.lax.optimization_barrier(values)
    return held if len(held) > 1 else held[0]


def transposed(x: Any, y: Any) -> Any:
    """Sums of matrices and their transposes."""
    a, b = apart(jnp.abs(x) * 2 + 1, y * 3)
    c = apart(a + b.T)
    d = apart(c * x.T)
    return (apart(jnp.abs(d.T) + 1) * a).sum()


def pyramid(x: Any) -> Any:
    """Sums at ever coarser resolutions, all kept until the end."""
    levels = [x]
    for _ in range(6):
        x = apart(x.reshape(x.shape[0], -1, 2).sum(-1))
        levels.append(apart(jnp.tanh(x)))
    return sum(jnp.sin(apart(level)).sum() for level in reversed(levels))


def adam(params: Any, grads: Any, mean: Any, square: Any) -> Any:
    """An optimizer's step on arrays of different sizes."""

    def step(p: Any, g: Any, m: Any, v: Any) -> Any:
        m, v = apart(0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g)
        return p - 0.1 * m / (jnp.sqrt(v) + 1e-6), m, v

    return jax.tree.map(step, params, grads, mean, square)


def stencil(x: Any) -> Any:
    """A gradient through steps of a heat equation."""

    def step(u: Any) -> Any:
        return apart(u + 0.1 * (jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 2 * u) * jnp.cos(u))

    def run(u: Any) -> Any:
        for _ in range(5):
            u = step(u)
        return (u * u).sum()

    return jax.grad(run)(x)


def normalized(x: Any, scale: Any) -> Any:
    """A gradient through layers that only normalize."""

    def loss(x: Any, scale: Any) -> Any:
        for row in scale:
            x = apart(x + jnp.tanh((x - x.mean(-1, keepdims=True)) * row))
        return (x * x).mean()

    return jax.grad(loss, argnums=(0, 1))(x, scale)


def recurrent(w: Any, xs: Any) -> Any:
    """A gradient through a recurrent network in a loop."""

    def loss(w: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(h @ w + x)
            return h, (h * h).mean()

        return jax.lax.scan(step, xs[0], xs)[1].sum()

    return w - 0.1 * jax.grad(loss)(w)


def sorted_sums(x: Any) -> Any:
    """Running sums of sorted rows."""
    return jnp.cumsum(jnp.sort(x, 1), 1) / (1 + jnp.abs(x))


def nearest(points: Any, centres: Any) -> Any:
    """A step of k-means."""
    apart_by = ((points**2).sum(-1)[:, None] - 2 * points @ centres.T) + (centres**2).sum(-1)
    soft = jax.nn.softmax(-apart_by, -1)
    return (soft.T @ points) / (soft.sum(0)[:, None] + 1e-6)


def looked_up(table: Any, words: Any) -> Any:
    """A gradient into a table of embeddings."""

    def loss(table: Any) -> Any:
        found = apart(table[words])
        return (apart(jnp.tanh(found)) * found).sum()

    return table - jax.grad(loss)(table)


def attended(q: Any, k: Any, v: Any) -> Any:
    """A gradient of attention whose scores are whole."""

    def loss(q: Any) -> Any:
        scores = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k), -1)
        return (jnp.einsum("bqk,bkd->bqd", scores, v) ** 2).sum()

    return jax.grad(loss)(q)


def mixed(x: Any, a: Any, b: Any) -> Any:
    """A gradient through a layer recomputed in the backward pass."""

    def loss(a: Any, b: Any) -> Any:
        layer = jax.checkpoint(lambda h: h + jax.nn.gelu(h @ a) @ b)
        return (layer(layer(x)) ** 2).mean()

    return jax.grad(loss, argnums=(0, 1))(a, b)


def accumulated(w: Any, xs: Any) -> Any:
    """Gradients summed in a loop over parts of a batch."""

    def add(total: Any, x: Any) -> Any:
        return total + jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w), None

    return w - jax.lax.scan(add, jnp.zeros_like(w), xs)[0]


def butterflies(x: Any) -> Any:
    """Stages that combine halves, as a fast transform does; sizes grow and shrink."""
    for stage in range(5):
        left, right = jnp.split(x, 2, 1)
        x = apart(jnp.concatenate([left + right, (left - right) * (stage + 1)], 1))
        if stage % 2:
            x = apart(jnp.concatenate([x, x[:, : x.shape[1] // 2]], 1))[:, : x.shape[1]]
    return x


def branches(x: Any, y: Any) -> Any:
    """Branches of different widths that meet at the end."""
    wide = apart(jnp.concatenate([x, y], 1) * 2)
    narrow = apart(x[:, ::2] + 1)
    middle = apart(jnp.sin(wide)[:, : 3 * x.shape[1] // 2])
    small = apart(jnp.cos(narrow) * y[:, ::2])
    return (apart(middle.sum(1)), apart((wide * wide).sum(1)), (small * narrow).sum(1))


def ensemble(ws: Any, x: Any) -> Any:
    """A gradient of several small models of one input."""

    def loss(ws: Any) -> Any:
        return sum((apart(jnp.tanh(x @ w)) ** 2).mean() * (i + 1) for i, w in enumerate(ws))

    return [w - g for w, g in zip(ws, jax.grad(loss)(ws), strict=True)]


_SIZES = (384, 640, 1280, 2048, 896)
_LINKED: dict[str, Any] = {
    "transposed": lambda b: (transposed, (floats(512 * b, 4096), floats(4096, 512 * b))),
    "pyramid": lambda b: (pyramid, (floats(1024 * b, 8192),)),
    "adam": lambda b: (adam, ({str(n): floats(n * b, 2048) for n in _SIZES},) * 4),
    "stencil": lambda b: (stencil, (floats(1024 * b, 4096),)),
    "normalized": lambda b: (normalized, (floats(1024 * b, 4096), floats(6, 4096))),
    "recurrent": lambda b: (recurrent, (floats(256, 256), floats(64, 128 * b, 256))),
    "sorted_sums": lambda b: (sorted_sums, (floats(4096 * b, 1024),)),
    "nearest": lambda b: (nearest, (floats(8192 * b, 128), floats(1024, 128))),
    "looked_up": lambda b: (looked_up, (floats(32768, 256), numbers(16 * b, 2048))),
    "attended": lambda b: (attended, (floats(2 * b, 2048, 64),) * 3),
    "mixed": lambda b: (mixed, (floats(4096 * b, 512), floats(512, 2048), floats(2048, 512))),
    "accumulated": lambda b: (accumulated, (floats(1024, 1024), floats(4, 2048 * b, 1024))),
    "butterflies": lambda b: (butterflies, (floats(1024 * b, 8192),)),
    "branches": lambda b: (branches, (floats(1024 * b, 4096),) * 2),
    "ensemble": lambda b: (
        ensemble,
        ([floats(512, n) for n in (512, 1024, 2048, 4096)], floats(2048 * b, 512)),
    ),
}


def program(name: str, batch: int = 8) -> Any:
    """One of the programs."""
    function, arguments = _LINKED[name](batch)
    return jax.jit(function), arguments


def scaled(name: str, eighths: int = 8) -> Any:
    """A program of `large`, or else of `small`, whose batch is so many eighths of its own."""
    found = LARGE_PROGRAMS[name] if name in LARGE_PROGRAMS else PROGRAMS[name]

    def grown(array: Any) -> Any:
        first, *rest = array.shape
        return jax.ShapeDtypeStruct((max(first * eighths // 8, 1), *rest), array.dtype)

    kept = found.arguments[: len(found.arguments) > 1]  # weights, if there are any
    arguments = (*kept, *jax.tree.map(grown, found.arguments[len(kept) :]))
    return jax.jit(found.function, donate_argnums=found.donated), arguments
