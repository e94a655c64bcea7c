"""Compiles programs before and after one change, for the tests of `hlomem diff`.

    python -m tools.record_pairs [--compact] [PAIR...]      (in an environment with jax)

Writes what XLA dumps to tests/goldens/pairs/PAIR/{before,after}/, with a line for every
get-tuple-element, or, with --compact, as the README's own flags have it. Each side is compiled in a
process of its own, since XLA reads its flags once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PAIRS = Path(__file__).parent.parent / "tests" / "goldens" / "pairs"
SIDES = ("before", "after")
FLAGS = (
    "--xla_dump_hlo_as_text",
    "--xla_force_host_platform_device_count=4",
)
JAX = {
    "JAX_PLATFORMS": "cpu",
    # Names files from the project or the package on, whatever folder they lie in.
    "JAX_HLO_SOURCE_FILE_CANONICALIZATION_REGEX": r".*/(?=tools/)|.*/site-packages/",
}
_FILES = {
    ".txt": "module.hlo",
    "-buffer-assignment.txt": "buffer-assignment.txt",
    "-buffer-assignment-values.txt": "values.txt",
    "-live-range.txt": "live-range.txt",
}
_STEM = "after_optimizations"


def donation_dropped(jax: Any, *, changed: bool) -> None:
    """A training step whose parameters are no longer donated."""
    jnp = jax.numpy

    def step(params: Any, x: Any) -> Any:
        def loss(p: Any) -> Any:
            hidden = jnp.tanh(x @ p["w1"] + p["b1"])
            return jnp.mean((hidden @ p["w2"]) ** 2)

        gradient = jax.grad(loss)(params)
        return jax.tree.map(lambda w, d: w - 0.1 * d, params, gradient)

    params = {
        "w1": array(jax, 256, 512),
        "b1": array(jax, 512),
        "w2": array(jax, 512, 128),
    }
    compile_ = jax.jit(step, donate_argnums=() if changed else 0)
    compile_.lower(params, array(jax, 64, 256)).compile()


def remat_removed(jax: Any, *, changed: bool) -> None:
    """A scanned network that no longer recomputes its layers in the backward pass."""
    jnp = jax.numpy

    def layer(x: Any, w: Any) -> Any:
        hidden = jnp.sin(jnp.tanh(x @ w) * 2.0)
        return x + hidden @ w.T, None

    body = layer if changed else jax.checkpoint(layer)

    def loss(ws: Any, x: Any) -> Any:
        return jnp.sum(jax.lax.scan(body, x, ws)[0] ** 2)

    jax.jit(jax.grad(loss)).lower(array(jax, 6, 64, 256), array(jax, 128, 64)).compile()


def dtype_widened(jax: Any, *, changed: bool) -> None:
    """An attention score that is now computed in 64 bits."""
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy

    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bqd,bkd->bqk", q, k)
        wide = scores.astype(jnp.float64) if changed else scores
        weights = jax.nn.softmax(jnp.sort(wide, axis=-1), axis=-1)
        return jnp.einsum("bqk,bkd->bqd", weights.astype(jnp.float32), v)

    jax.jit(attend).lower(*[array(jax, 8, 128, 32)] * 3).compile()


def batch_doubled(jax: Any, *, changed: bool) -> None:
    """The same network on twice the batch."""
    jnp = jax.numpy

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = jnp.tanh(x @ w)
        return jnp.mean(x**2)

    ws = [array(jax, 128, 128)] * 3
    jax.jit(jax.value_and_grad(loss)).lower(ws, array(jax, 512 if changed else 256, 128)).compile()


def sharding_lost(jax: Any, *, changed: bool) -> None:
    """A weight that is no longer spread over four devices."""
    spec = jax.sharding.PartitionSpec
    mesh = jax.make_mesh((4,), ("model",))

    def put(*names: str | None) -> Any:
        return jax.sharding.NamedSharding(mesh, spec(*names))

    def mlp(x: Any, w1: Any, w2: Any) -> Any:
        return jax.nn.relu(x @ w1) @ w2

    w1 = put() if changed else put(None, "model")
    compile_ = jax.jit(mlp, in_shardings=(put(), w1, put("model", None)), out_shardings=put())
    arguments = (array(jax, 32, 256), array(jax, 256, 1024), array(jax, 1024, 256))
    compile_.lower(*arguments).compile()


def sequence_doubled(jax: Any, *, changed: bool) -> None:
    """Attention over twice the positions, of which a token more than that is an argument."""
    jnp = jax.numpy

    def loss(params: Any, tokens: Any) -> Any:
        x = params["embed"][tokens[:, :-1]]
        scores = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", x, x))
        x = jnp.einsum("bqk,bkd->bqd", scores, x) @ params["mix"]
        logits = jax.nn.log_softmax(x @ params["embed"].T)
        return -jnp.mean(jnp.take_along_axis(logits, tokens[:, 1:, None], -1))

    params = {"embed": array(jax, 96, 32), "mix": array(jax, 32, 32)}
    tokens = jax.ShapeDtypeStruct((4, 129 if changed else 65), jnp.int32)
    jax.jit(jax.value_and_grad(loss)).lower(params, tokens).compile()


def width_doubled(jax: Any, *, changed: bool) -> None:
    """A network of twice the width."""
    width = 256 if changed else 128
    _compile_layers(jax, [{"up": (width, 2 * width), "down": (2 * width, width)}] * 2, width)


def layers_added(jax: Any, *, changed: bool) -> None:
    """A network of three numbered layers instead of two."""
    shapes = {"up": (64, 128), "down": (128, 64)}
    _compile_layers(jax, [shapes] * (3 if changed else 2), 64)


def _compile_layers(jax: Any, layers: list[dict[str, tuple[int, int]]], width: int) -> None:
    jnp = jax.numpy

    def loss(params: Any, x: Any) -> Any:
        for number in range(len(layers)):
            with jax.named_scope(f"block_{number}"):
                layer = params[f"block_{number}"]
                x = x + jnp.tanh(x @ layer["up"]) @ layer["down"]
        return jnp.mean(x**2)

    params = {
        f"block_{number}": {name: array(jax, *shape) for name, shape in layer.items()}
        for number, layer in enumerate(layers)
    }
    jax.jit(jax.value_and_grad(loss)).lower(params, array(jax, 256, width)).compile()


def stacked_layers_added(jax: Any, *, changed: bool) -> None:
    """A scan over eight layers instead of four."""
    _compile_stack(jax, 8 if changed else 4, unroll=False)


def scan_unrolled(jax: Any, *, changed: bool) -> None:
    """Layers in a Python loop instead of a scan."""
    _compile_stack(jax, 4, unroll=changed)


def _compile_stack(jax: Any, count: int, *, unroll: bool) -> None:
    jnp = jax.numpy

    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w["in"]) @ w["out"] + x, None

    def loss(params: Any, x: Any) -> Any:
        if not unroll:
            return jnp.mean(jax.lax.scan(layer, x, params)[0] ** 2)
        for number in range(count):
            x, _ = layer(x, jax.tree.map(lambda leaf, at=number: leaf[at], params))
        return jnp.mean(x**2)

    params = {"in": array(jax, count, 64, 96), "out": array(jax, count, 96, 64)}
    jax.jit(jax.value_and_grad(loss)).lower(params, array(jax, 128, 64)).compile()


def barrier_added(jax: Any, *, changed: bool) -> None:
    """A barrier that keeps differences from being fused into their sum."""
    jnp = jax.numpy

    def distances(a: Any, b: Any) -> Any:
        difference = a[:, None] - b[None]
        if changed:
            difference = jax.lax.optimization_barrier(difference)
        return jnp.sum(difference**2, -1)

    jax.jit(distances).lower(array(jax, 64, 32), array(jax, 64, 32)).compile()


def channels_first(jax: Any, *, changed: bool) -> None:
    """Images with channels first instead of last."""
    jnp = jax.numpy
    layout = "NCHW" if changed else "NHWC"

    def loss(params: Any, images: Any) -> Any:
        for kernel in params:
            images = jax.nn.relu(
                jax.lax.conv_general_dilated(
                    images, kernel, (1, 1), "SAME", dimension_numbers=(layout, "HWIO", layout)
                )
            )
        return jnp.mean(images)

    images = (8, 4, 16, 24) if changed else (8, 16, 24, 4)
    params = [array(jax, 3, 3, 4, 32), array(jax, 3, 3, 32, 32)]
    jax.jit(jax.value_and_grad(loss)).lower(params, array(jax, *images)).compile()


def devices_added(jax: Any, *, changed: bool) -> None:
    """A batch that is split over four devices instead of one."""
    jnp = jax.numpy
    spec = jax.sharding.PartitionSpec
    mesh = jax.make_mesh((4 if changed else 1,), ("data",))

    def loss(params: Any, x: Any) -> Any:
        return jnp.mean(jnp.tanh(jnp.tanh(x @ params["w1"]) @ params["w2"]) ** 2)

    split = jax.sharding.NamedSharding(mesh, spec("data"))
    whole = jax.sharding.NamedSharding(mesh, spec())
    params = {"w1": array(jax, 64, 256), "w2": array(jax, 256, 64)}
    compile_ = jax.jit(jax.grad(loss), in_shardings=(whole, split), out_shardings=whole)
    compile_.lower(params, array(jax, 256, 64)).compile()


def activations_narrowed(jax: Any, *, changed: bool) -> None:
    """Activations in bf16, parameters as before."""
    jnp = jax.numpy
    dtype = jnp.bfloat16 if changed else jnp.float32

    def loss(params: Any, x: Any) -> Any:
        x = x.astype(dtype)
        for w in params:
            x = jnp.sort(jnp.sin(x), axis=-1) * w.astype(dtype)
        return jnp.mean(x.astype(jnp.float32) ** 2)

    params = [array(jax, 128)] * 3
    jax.jit(jax.value_and_grad(loss)).lower(params, array(jax, 512, 128)).compile()


PROGRAMS: dict[str, Callable[..., None]] = {
    program.__name__: program
    for program in (
        donation_dropped,
        remat_removed,
        dtype_widened,
        batch_doubled,
        sharding_lost,
        sequence_doubled,
        width_doubled,
        layers_added,
        stacked_layers_added,
        scan_unrolled,
        barrier_added,
        channels_first,
        devices_added,
        activations_narrowed,
    )
}


def array(jax: Any, *dimensions: int) -> Any:
    return jax.ShapeDtypeStruct(dimensions, jax.numpy.float32)


def record(name: str, *, compact: bool = False) -> None:
    """Compiles both sides of a pair and keeps what XLA wrote."""
    for side in SIDES:
        with tempfile.TemporaryDirectory() as scratch:
            elements = () if compact else ("--xla_dump_compact_gte=false",)
            flags = " ".join((f"--xla_dump_to={scratch}", *FLAGS, *elements))
            line = [sys.executable, "-m", "tools.record_pairs", name, side]
            subprocess.run(line, check=True, env=os.environ | JAX | {"XLA_FLAGS": flags})
            keep(Path(scratch), PAIRS / name / side)
    origin = {
        "program": f"{name} of tools/record_pairs.py",
        "change": (PROGRAMS[name].__doc__ or "").strip(),
        "backend": "cpu",
        "jaxlib": jaxlib_version(),
    }
    (PAIRS / name / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")


def jaxlib_version() -> str:
    return str(import_module("jaxlib").__version__)


def keep(scratch: Path, target: Path) -> None:
    """The files of the largest module of a dump folder, by their short names."""
    stems = [p.name.split(_STEM)[0] for p in scratch.glob(f"*{_STEM}-buffer-assignment.txt")]
    largest = max(stems, key=lambda stem: (scratch / f"{stem}{_STEM}.txt").stat().st_size)
    target.mkdir(parents=True, exist_ok=True)
    for suffix, name in _FILES.items():
        shutil.copy(scratch / f"{largest}{_STEM}{suffix}", target / name)


def main(arguments: list[str]) -> None:
    """One side of a pair, or all pairs, or those named."""
    if arguments[1:] and arguments[1] in SIDES:
        PROGRAMS[arguments[0]](import_module("jax"), changed=arguments[1] == "after")
        return
    compact = "--compact" in arguments
    names = [each for each in arguments if each != "--compact"]
    for name in names or PROGRAMS:
        record(name, compact=compact)


if __name__ == "__main__":
    main(sys.argv[1:])
