"""Compiles programs at several sizes, for the tests of plans at a size nobody compiled.

    python -m tools.record_sizes [PROGRAM...]      (in an environment with jax)

Writes the module and the allocations that XLA dumps to tests/goldens/sizes/PROGRAM/SIZE/. Each size
is compiled in a process of its own, since XLA reads its flags once. At the sizes of `SIZES` XLA
compiles a program alike, at that of `ELSEWHERE` it does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.record_pairs import FLAGS, JAX, array, jaxlib_version, keep

if TYPE_CHECKING:
    from collections.abc import Callable

HOME = Path(__file__).parent.parent / "tests" / "goldens" / "sizes"
SIZES = {
    "attention": (16, 32, 128),
    "convolution": (4, 16, 48),
    "loop": (2, 4, 32),
    "positions": (4, 8, 16),
    "train_step": (2, 4, 8),
}
ELSEWHERE = {"train_step": 16}
_KEPT = ("module.hlo", "buffer-assignment.txt")


def attention(jax: Any, size: int) -> None:
    """A layer of attention; the size is that of the batch."""
    jnp = jax.numpy

    def layer(x: Any, *weights: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = ((x @ w).reshape(batch, length, 6, width // 6) for w in weights[:3])
        scores = jax.nn.softmax(jnp.einsum("bshd,bthd->bhst", q, k))
        mixed = jnp.einsum("bhst,bthd->bshd", scores, v).reshape(x.shape)
        return mixed @ weights[3] + x

    jax.jit(layer).lower(array(jax, size, 50, 96), *[array(jax, 96, 96)] * 4).compile()


def convolution(jax: Any, size: int) -> None:
    """Convolutions and windows over a batch of images."""
    labels = ("NHWC", "HWIO", "NHWC")

    def network(x: Any, *kernels: Any) -> Any:
        for kernel in kernels:
            x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=labels)
            window = (1, 2, 2, 1)
            x = jax.lax.reduce_window(
                jax.nn.relu(x), -jax.numpy.inf, jax.lax.max, window, window, "VALID"
            )
        return x.mean((1, 2))

    kernels = array(jax, 3, 3, 3, 16), array(jax, 3, 3, 16, 32)
    jax.jit(network).lower(array(jax, size, 28, 28, 3), *kernels).compile()


def loop(jax: Any, size: int) -> None:
    """A scan that carries a batch."""
    jnp = jax.numpy

    def body(carried: Any, weight: Any) -> Any:
        carried = jnp.tanh(carried @ weight)
        return carried, carried.sum(0)

    scanned = jax.jit(lambda x, weights: jax.lax.scan(body, x, weights))
    scanned.lower(array(jax, size, 70), array(jax, 9, 70, 70)).compile()


def positions(jax: Any, size: int) -> None:
    """Scores of all pairs of positions, and a result of all but one of them twice."""

    def mix(x: Any, weight: Any) -> Any:
        mixed = x @ weight
        mixed = jax.nn.softmax(mixed @ mixed.T) @ x
        return jax.numpy.concatenate([mixed[1:], x], 0)

    jax.jit(mix).lower(array(jax, size, 60), array(jax, 60, 60)).compile()


def train_step(jax: Any, size: int) -> None:
    """A training step whose parameters are donated."""
    jnp = jax.numpy

    def loss(params: Any, x: Any, y: Any) -> Any:
        for weight, bias in params:
            x = jnp.tanh(x @ weight + bias)
        return jnp.mean((x - y) ** 2)

    def step(params: Any, x: Any, y: Any) -> Any:
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x, y))

    widths = (100, 200, 300, 50)
    params = [(array(jax, before, after), array(jax, after)) for before, after in pairwise(widths)]
    compile_ = jax.jit(step, donate_argnums=0)
    compile_.lower(params, array(jax, size, 100), array(jax, size, 50)).compile()


PROGRAMS: dict[str, Callable[..., None]] = {
    program.__name__: program for program in (attention, convolution, loop, positions, train_step)
}


def record(name: str) -> None:
    """Compiles a program at all its sizes and keeps what XLA wrote."""
    sizes = [*SIZES[name], *([ELSEWHERE[name]] if name in ELSEWHERE else [])]
    for size in sizes:
        with tempfile.TemporaryDirectory() as scratch:
            flags = " ".join((f"--xla_dump_to={scratch}", *FLAGS, "--xla_dump_compact_gte=false"))
            line = [sys.executable, "-m", "tools.record_sizes", name, str(size)]
            subprocess.run(line, check=True, env=os.environ | JAX | {"XLA_FLAGS": flags})
            keep(Path(scratch), HOME / name / str(size))
        for path in (HOME / name / str(size)).iterdir():
            if path.name not in _KEPT:
                path.unlink()
    origin = {
        "program": f"{name} of tools/record_sizes.py",
        "about": (PROGRAMS[name].__doc__ or "").strip(),
        "sizes": sizes,
        "backend": "cpu",
        "jaxlib": jaxlib_version(),
    }
    (HOME / name / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")


def main(arguments: list[str]) -> None:
    """One size of a program, or all programs, or those named."""
    if arguments[1:] and arguments[1].isdecimal():
        PROGRAMS[arguments[0]](import_module("jax"), int(arguments[1]))
        return
    for name in arguments or PROGRAMS:
        record(name)


if __name__ == "__main__":
    main(sys.argv[1:])
