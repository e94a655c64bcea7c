"""Compiles programs of a set and keeps XLA's dumps of them, for tests of shardings.

    python -m tools.record_shardings [--fixed] tools/sharded/SET/NAME.py...

Each becomes tests/goldens/sharded/NAME: the module before and after optimizations, the plan and the
compiler's log, gzipped as XLA wrote them, but for the folder that the program lies in, which reads
/home/me; and origin.json, with what JAX says of the arguments.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import plan_in_child
from tools.check_shardings import DEVICES, compile_whole, read_program

GOLDENS = Path(__file__).parent.parent / "tests" / "goldens" / "sharded"
KEPT = (
    ".before_optimizations.txt",
    "after_optimizations.txt",
    "-buffer-assignment.txt",
    "-buffer-assignment-values.txt",
    "-live-range.txt",
)


def record(file: Path, *, is_fixed: bool = False) -> Path:
    """Compiles one program, or its repaired version; returns its new home."""
    program = read_program(file.resolve())
    factory = f"{program.file}:make_fixed" if is_fixed else program.factory
    home = GOLDENS / f"{file.stem}{'_fixed' if is_fixed else ''}"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    with TemporaryDirectory() as made:
        job = Job(factory=factory, target=program.target)
        planned = plan_in_child(job, output=Path(made))
        here = str(program.file.parent)
        for path in sorted(Path(made).iterdir()):
            if path.name.endswith(KEPT):
                text = path.read_text().replace(here, "/home/me")
                _write(home / f"{path.name}.gz", text)
        _write(home / "log.txt.gz", planned.output)
    truth = compile_whole(factory, program.target)
    if isinstance(truth, str):
        raise SystemExit(truth)
    origin = {
        "program": f"tools/sharded/{program.file.parent.name}/{file.name}",
        "target": program.target,
        "versions": planned.facts.versions,
        "written_by": "XLA",
        "argument_bytes": truth.arguments,
        "shards": truth.shapes,
    }
    (home / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")
    return home


def _write(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--fixed", action="store_true", help="The repaired version.")
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}".strip()
    given = parser.parse_args()
    for file in given.files:
        print(record(file, is_fixed=given.fixed))


if __name__ == "__main__":
    main()
