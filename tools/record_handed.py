"""Records modules of small programs as a compiler hands them to passes, behind its scheduler.

    python -m tools.record_handed --target tpu-v5e:2x2 NAME …

Each program scans its layers and takes a gradient, so that one loop stacks what another reads. The
target's compiler runs without the chip; what it handed over goes to
`tests/goldens/handed/<target>/<program>.hlo.gz`, and how it came about to `origins.json`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.placeholder import temporaries_of
from hlomem.jax.compile.scheduled_module import capture

if TYPE_CHECKING:
    from collections.abc import Sequence

HOME = Path(__file__).parent.parent / "tests" / "goldens" / "handed"
_FACTORY = "tools.record_handed:program"
_PATHS = {
    "JAX_HLO_SOURCE_FILE_CANONICALIZATION_REGEX": r".*/(?=tools/|src/)|.*/site-packages/",
}
_PACKAGES = {"tpu": "libtpu", "cuda": "jax-cuda13-plugin", "cpu": "jaxlib"}
NAMES = ("gpt_scan", "lstm", "small_loops")


def program(name: str) -> Any:
    """The factory."""
    jax: Any = import_module("jax")
    large: Any = import_module("tools.large_programs")
    models: Any = import_module("tools.order_programs")
    words, weights = large._numbers(4, 32), large._looped(32, 4, 64)
    if name == "small_loops":
        return jax.jit(jax.grad(_small)), (large._floats(64), large._floats(24, 64))
    if name == "lstm":
        floats = large._floats
        return jax.jit(large.lstm_train), (floats(64, 128), floats(6, 8, 32))
    return jax.jit(partial(models.train, models.gpt_scan)), (weights, words, words)


def _small(w: Any, xs: Any) -> Any:
    """Loops so small that XLA:CPU puts each into a call."""
    jax: Any = import_module("jax")

    def cell(h: Any, x: Any) -> Any:
        h = jax.numpy.tanh(x + h) * w
        return h, jax.numpy.sin(h)

    return jax.lax.scan(cell, xs[0] * 0, xs)[1].sum()


def _text_of(proto: bytes) -> str:
    """As XLA prints it by itself."""
    module = import_module("jaxlib._hlo").HloModule
    return str(module.from_serialized_hlo_module_proto(proto).to_string())


def record(name: str, target: str) -> Path:
    """Compile a program and keep the module that passes are handed."""
    job = Job(factory=_FACTORY, target=target, settings={"name": name})
    planned, proto = capture(job, 600.0, lambda _: None)
    home = HOME / target.partition(":")[0]
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{name}.hlo.gz"
    path.write_bytes(gzip.compress(_text_of(proto).encode(), mtime=0))
    package = _PACKAGES[planned.target.family]
    origins = HOME / "origins.json"
    known = json.loads(origins.read_text()) if origins.exists() else {}
    known[f"{home.name}/{name}"] = {
        "program": f"{name} of tools/record_handed.py",
        "target": target,
        "written_by": f"{package} {metadata.version(package)}",
        "jaxlib": metadata.version("jaxlib"),
        "temporaries": temporaries_of(planned.dump),
    }
    origins.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("name", nargs="+", choices=NAMES)
    given = parser.parse_args(arguments)
    os.environ.update(_PATHS)
    for name in given.name:
        print(record(name, given.target))
    return 0


if __name__ == "__main__":
    sys.exit(main())
