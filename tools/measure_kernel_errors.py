"""Measures what `hlomem oom` makes of VMEM errors that libtpu really raises.

    .venv-jax/bin/python -m tools.measure_kernel_errors [-o FOLDER]

Each program is compiled whole with blocks that are too large. The message has to be read right: the
kernel, its numbers. Then the change that `--shrink` finds is compiled, whole again, and has to fit.
With `-o` the messages are kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hlomem.jax.kernels.front import measure_factory
from hlomem.report.oom.explanation import build_oom
from hlomem.report.oom.log import read_oom
from hlomem.report.screens.kernels_text import describe_change
from tools.measure_kernels import truths

_HOME = "tools.programs.kernels"
ERRORS: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    (
        "dense:matmul",
        "tpu-v5e",
        {"block_m": 1024, "block_n": 1024, "block_k": 2048},
        "tiled_matmul",
    ),
    (
        "dense:gelu_matmul",
        "tpu-v5e",
        {"block_m": 1024, "block_n": 1024, "block_k": 1024},
        "pallas_call",
    ),
    ("dense:swiglu", "tpu-v5e", {"block_m": 512, "block_f": 1024}, "pallas_call"),
    (
        "dense:matmul",
        "tpu-v6e",
        {"block_m": 2048, "block_n": 1024, "block_k": 2048},
        "tiled_matmul",
    ),
    ("rows:softmax", "tpu-v5e", {"block": 512}, "pallas_call"),
    ("rows:rms_norm", "tpu-v5p", {"block": 512}, "pallas_call"),
    ("rows:quantize", "tpu-v5e", {"block": 512}, "pallas_call"),
    ("rows:adam", "tpu-v5e", {"block": 256}, "pallas_call"),
    ("rows:norm_backward", "tpu-v5e", {"block": 256}, "pallas_call"),
    ("rows:by_hand", "tpu-v5p", {"block": 2048}, "pallas_call"),
    ("attention:rows_of_scores", "tpu-v5e", {"block_q": 1024, "length": 4096}, "pallas_call"),
    ("of_jax:flash_forward", "tpu-v5e", {"block_q": 2048, "block_k": 2048}, "flash_attention"),
    ("of_jax:gmm", "tpu-v5e", {"tile_m": 1024, "tile_k": 1024, "tile_n": 2048}, "gmm"),
    ("of_jax:flash_backward", "tpu-v5p", {"block": 2048}, "flash_mha_bwd"),
)


def measure(
    name: str, target: str, settings: dict[str, Any], kernel: str, cache: Path
) -> tuple[str, str]:
    """The verdict on one error, and libtpu's message."""
    factory = f"{_HOME}.{name}"
    [(_, refusal)] = truths(factory, [(target, settings)])
    if not refusal or refusal.startswith("ERROR"):
        return f"no error to explain: {refusal[:100]}", refusal
    oom = build_oom(read_oom(refusal))
    if oom is None or oom.kernel is None:
        return "not recognised", refusal
    found = oom.kernel
    named = kernel in found.name or kernel in found.op_name
    report = measure_factory(
        factory, targets=[target], settings=settings, is_shrink=True, cache=cache
    )
    [best] = report.largest
    if best.settings is None:
        return f"{found.name}: no change found", refusal
    [(used, after)] = truths(factory, [(target, {**settings, **best.settings})])
    change = describe_change(report.asked, best.settings)
    verdict = "right" if named and not after and used else "WRONG"
    numbers = f"{found.needed} of {found.limit}"
    return f"{verdict}: {found.name} {numbers}; {change}: {used} {after[:100]}", refusal


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    with TemporaryDirectory() as cache:
        for name, target, settings, kernel in ERRORS:
            if asked.only not in name:
                continue
            verdict, text = measure(name, target, settings, kernel, Path(cache))
            print(f"{name} {target} {settings}: {verdict}", flush=True)
            if asked.output:
                asked.output.mkdir(parents=True, exist_ok=True)
                file = f"{name.replace(':', '_')}_{target}.txt"
                (asked.output / file).write_text(text)


if __name__ == "__main__":
    main()
