"""Measures the advice on the limit of scoped VMEM: whole programs, by libtpu's plans.

    .venv-jax/bin/python -m tools.measure_scoped_limits [--limit KIB]

Each program is compiled with the limit that recipes set, and with the one that hlomem advises. The
promise is the difference of the limits; the plans tell how much more of VMEM holds values, and how
much less HBM the program needs.
"""

from __future__ import annotations

import argparse
import os

from hlomem.jax.compile.messages import Job
from hlomem.jax.kernels.limits import advise_limit
from hlomem.view.scoped import LIMIT_FLAG

_HOME = "tools.programs.kernels.in_programs"
PROGRAMS = (
    ("decoding", "tpu-v5e:2x2"),
    ("experts", "tpu-v6e:2x2"),
    ("attention_block", "tpu-v5e:2x2"),
    ("training", "tpu-v5e:2x2"),
    ("kernel_training", "tpu-v6e:2x2"),
    ("convolutions", "tpu-v5e:2x2"),
    ("kernel_training", "tpu-v5e:2x2"),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int, default=98304)
    asked = parser.parse_args()
    os.environ["LIBTPU_INIT_ARGS"] = f"--{LIMIT_FLAG}={asked.limit}"
    for name, target in PROGRAMS:
        found = advise_limit(Job(factory=f"{_HOME}:{name}", target=target), 900)
        words = "no advice" if found is None else f"{found.title}; HBM {found.got}"
        print(f"{name} {target}: {words}", flush=True)


if __name__ == "__main__":
    main()
