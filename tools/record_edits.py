"""Records the programs of `tests/opt/edits`: small ones, as XLA's schedulers order them.

    python -m tools.record_edits [NAME …]

Writes the first part of each file; `EDITS=update pytest tests/opt/test_edits.py` writes what
becomes of the program. Metadata are left out, and settings of backends except those of slices and
loops where a case keeps them, so that the texts are short.
Without its library fusions XLA:CPU leaves products as they are; without Triton's products those of
a GPU are calls of cuBLAS.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.scheduled_module import capture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOME = Path(__file__).parent.parent / "tests" / "opt" / "edits"
_FACTORY = "tools.record_edits:program"
_FLAGS = "--xla_cpu_experimental_ynn_fusion_type="
_OTHER_SETTINGS = re.compile(
    r", backend_config=\{(?!.*(?:dynamic_slice_config|known_induction)).*\}$", re.MULTILINE
)
_CUBLAS = " --xla_gpu_enable_triton_gemm=false"


class Case(NamedTuple):
    """A program and what is done to it."""

    run: str
    """The command and its settings."""
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    target: str = "cpu"
    flags: str = ""
    keeps_counts: bool = False
    """Whether what slices and loops say of iterations is written."""


def _rows(x: Any, w: Any) -> Any:
    """Products of which only the first rows are needed, after a sort."""
    jnp = import_module("jax.numpy")
    return [jnp.sort((x * factor) @ w, 0)[:1] for factor in (2.0, 3.0)]


def _read_late(x: Any) -> Any:
    """A value that is cheap to make, read before products and after them."""
    jnp = import_module("jax.numpy")
    made = jnp.tanh(x)
    product = -made
    for _ in range(2):
        product = product @ x
    return (product * made)[:1]


def _gathered(x: Any) -> Any:
    """Rows added to zeros in place, read before products and after them."""
    jnp = import_module("jax.numpy")
    rows = jnp.arange(64) * 5 % 64
    made = jnp.zeros_like(x).at[rows].add(x)
    product = made @ x
    for _ in range(2):
        product = product @ x
    return (product * made)[:1]


def _perceptron(first: Any, second: Any, third: Any, x: Any) -> Any:
    """The gradient of a perceptron of three layers, which keeps what each has made."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")

    def loss(weights: Any) -> Any:
        y = x
        for weight in weights:
            y = jnp.tanh(jnp.sin(y) @ weight)
        return (y * y).sum()

    return jax.grad(loss)((first, second, third))


def _scanned(w: Any, xs: Any) -> Any:
    """The gradient of a scan whose steps are cheap: the first loop stacks what the second reads."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")

    def cell(h: Any, x: Any) -> Any:
        h = jnp.tanh(x + h) * w
        return h, jnp.sin(h)

    return jax.grad(lambda w: jax.lax.scan(cell, xs[0] * w, xs)[1].sum())(w)


def _layers(weights: Any, x: Any) -> Any:
    """The gradient of a scan over layers, each of which takes its weights by a slice."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")

    def layer(h: Any, w: Any) -> Any:
        return jnp.tanh(jnp.sin(h) @ w), None

    return jax.grad(lambda weights: jax.lax.scan(layer, x, weights)[0].sum())(weights)


def _steps(first: Any, second: Any, third: Any, x: Any) -> Any:
    """A loop of training steps, each the gradient of a perceptron of three layers."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")

    def loss(weights: Any) -> Any:
        y = x
        for weight in weights:
            y = jnp.tanh(jnp.sin(y) @ weight)
        return (y * y).sum()

    def step(_: Any, weights: Any) -> Any:
        return jax.tree.map(lambda one, by: one - by, weights, jax.grad(loss)(weights))

    return jax.lax.fori_loop(0, 3, step, (first, second, third))


def _recurrence(h: Any, w: Any, xs: Any) -> Any:
    """The gradient of a recurrence whose steps are recomputed: a stack of its states is left."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")

    def cell(h: Any, x: Any) -> Any:
        return jnp.tanh(h * w + x), None

    checkpointed = jax.checkpoint(cell, prevent_cse=False)
    return jax.grad(lambda h: jax.lax.scan(checkpointed, h, xs)[0].sum())(h)


def _wave(now: Any, before: Any) -> Any:
    """A wave, whose next state is made of the last two."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")

    def step(_: Any, state: Any) -> Any:
        now, before = state
        spread = jnp.roll(now, 1, 1) + jnp.roll(now, -1, 1) - 2 * now
        return 2 * now - before + 0.1 * spread, now

    return jax.lax.fori_loop(0, 5, step, (now, before))


def _images(first: Any, second: Any, third: Any, x: Any) -> Any:
    """The gradient of three convolutions, which keeps what each has made."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")

    def loss(kernels: Any) -> Any:
        y = x
        for kernel in kernels:
            y = jnp.tanh(jax.lax.conv(jnp.sin(y), kernel, (1, 1), "SAME"))
        return (y * y).sum()

    return jax.grad(loss)((first, second, third))


def _chain(x: Any) -> Any:
    """Products made one from another, and read in the reverse order."""
    values = [x]
    for _ in range(6):
        values.append(values[-1] @ x)
    y = x
    for value in reversed(values):
        y = y @ value
    return y


CASES = {
    "order": Case("order", _rows, ((64, 64), (64, 64))),
    "recompute": Case("recompute budget=70%", _read_late, ((64, 64),)),
    "in_place": Case("recompute budget=70%", _gathered, ((64, 64),)),
    "cut": Case("cut price=0", _perceptron, ((64, 64),) * 4),
    "loops_stack": Case("loops price=0", _scanned, ((64,), (16, 64))),
    "segments": Case("segments", _recurrence, ((64,), (64,), (25, 64))),
    "copies": Case("copies", _wave, ((64, 64), (64, 64))),
    "inside": Case("inside budget=80%", _steps, ((64, 64),) * 4),
    "cut_in_loop": Case("cut-in-loop price=0", _steps, ((64, 64),) * 4),
    "cublas": Case(
        "recompute budget=60% machine=gpu-h100",
        _perceptron,
        ((256, 256), (256, 256), (256, 256), (8192, 256)),
        "cuda-h100",
        _CUBLAS,
    ),
    "cudnn": Case(
        "recompute budget=60% machine=gpu-h100",
        _images,
        ((16, 16, 3, 3), (16, 16, 3, 3), (16, 16, 3, 3), (32, 16, 64, 64)),
        "cuda-h100",
    ),
    "loops_slices": Case(
        "loops price=0 machine=gpu-h100",
        _layers,
        ((6, 256, 256), (2048, 256)),
        "cuda-h100",
        keeps_counts=True,
    ),
    "offload": Case("offload budget=70% machine=gpu-h100", _chain, ((4096, 4096),), "cuda-h100"),
}


def program(name: str) -> Any:
    """The factory."""
    jax: Any = import_module("jax")
    case = CASES[name]
    shapes = [jax.ShapeDtypeStruct(shape, "float32") for shape in case.shapes]
    return jax.jit(case.function), tuple(shapes)


def record(name: str) -> Path:
    """Compile a program and write what a file says before anything is done to it."""
    case, hlo = CASES[name], import_module("jaxlib._hlo")
    os.environ["XLA_FLAGS"] = _FLAGS + case.flags
    _, proto = capture(
        Job(factory=_FACTORY, target=case.target, settings={"name": name}), 600.0, lambda _: None
    )
    options = hlo.HloPrintOptions()
    options.print_metadata, options.print_backend_config = False, case.keeps_counts
    text = hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string(options)
    if case.keeps_counts:
        text = _OTHER_SETTINGS.sub("", text)
    doc = case.function.__doc__ or ""
    origin = f"jaxlib {metadata.version('jaxlib')}, {case.target}; {name} of tools/record_edits.py"
    lines = [f"// RUN: {case.run}", f"// {doc}", f"// Origin: {origin}", "", text.strip(), ""]
    path = HOME / f"{name}.hlo"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    for name in (sys.argv[1:] if arguments is None else arguments) or CASES:
        print(record(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
