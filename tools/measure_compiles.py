"""How long a plan takes of a whole compile, for machines that are not here; writes docs/jax.md.

    python -m tools.measure_compiles [--only NUMBER ...] [--write docs/jax.md]

Needs JAX and libtpu, for GPUs JAX's CUDA plugin (rows of what is missing are left out, and stay as
they were). Each row is a training step of examples/jax/gpt.py, planned by a child that is stopped
once its plan is complete, and compiled whole; CPU seconds of both, imports and tracing included.
Exit code 1 if the two plans differ.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import PlannedProgram, plan_in_child
from hlomem.jax.target_kinds import MissingSoftwareError
from tools.documents import ROOT
from tools.tables import held, put

if TYPE_CHECKING:
    from collections.abc import Sequence

_FACTORY = f"{ROOT / 'examples/jax/gpt.py'}:train_step"
_PAGE = ROOT / "docs/jax.md"
_MARK = "compiles"
_HEAD = ("| training step | target | plan only | whole compile | plan |", "|---|---|---|---|---|")


class Row(NamedTuple):
    """A program and a target."""

    words: str
    target: str
    settings: dict[str, Any]


ROWS = (
    Row("134M parameters, batch 4 × 1024", "tpu-v5e:2x2", {"batch": 4}),
    Row("the same, batch 12, which does not fit", "tpu-v5e:2x2", {"batch": 12}),
    Row("the same, batch 4", "tpu-v6e:2x2", {"batch": 4}),
    Row("the same, batch 4", "tpu-v5p:2x2x1", {"batch": 4}),
    Row(
        "936M parameters over 256 chips, batch 256 × 2048",
        "tpu-v5e:16x16",
        {"size": "1b", "batch": 256, "length": 2048, "fsdp": 256, "remat": "nothing_saveable"},
    ),
    Row("134M parameters, batch 8 × 1024", "cuda-h100", {"batch": 8}),
)


def _line(row: Row, stopped: PlannedProgram, whole: PlannedProgram) -> str:
    refused = ", refused" if whole.refusal else ""
    same = "the same, byte for byte" if str(stopped.dump) == str(whole.dump) else "DIFFERENT"
    seconds = f"{stopped.cpu_seconds:.1f} s | {whole.cpu_seconds:.1f} s{refused}"
    return f"| {row.words} | `{row.target}` | {seconds} | {same} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="*", choices=range(len(ROWS)))
    parser.add_argument("--write", type=Path)
    given = parser.parse_args(arguments)
    lines = held(given.write or _PAGE, _MARK).splitlines()[len(_HEAD) :]
    for number, row in enumerate(ROWS):
        if given.only is not None and number not in given.only:
            continue
        job = Job(factory=_FACTORY, target=row.target, settings=row.settings)
        try:
            line = _line(row, plan_in_child(job), plan_in_child(job, is_full=True))
        except MissingSoftwareError as error:
            print(f"{row.target}: {error}")
            continue
        print(line, flush=True)
        lines[number : number + 1] = [line]
    if given.write:
        put(given.write, _MARK, "\n".join([*_HEAD, *lines]))
    return int(any("DIFFERENT" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
