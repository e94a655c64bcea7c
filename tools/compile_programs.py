"""Compiles programs for TPUs as far as their plan, into entries like those of the corpus.

    python -m tools.compile_programs FOLDER CHIP[,CHIP...] [PROGRAM...] [--of MODULE]

Runs in an environment with jax and libtpu; no TPU is needed. Each program of
`tools.programs.production`, or each that is named of another module, becomes FOLDER/CHIP/PROGRAM
with the module, the files of XLA's dump and `meta.json`; `tools.record_goldens` takes them from
there. Those that are there already are left alone; those that do not compile are named.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from hlomem.base.errors import HlomemError
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import plan_in_child

CHIPS = {"v5e": "v5e", "v5p": "v5p", "v6e": "v6e", "7x": "tpu7x", "v4": "v4"}
FILES = {
    ".after_optimizations.txt": "module.hlo",
    "-buffer-assignment.txt": "buffer-assignment.txt",
    "-buffer-assignment-values.txt": "values.txt",
    "-live-range.txt": "live-range.txt",
    "-memory-usage-report.txt": "memory-usage-report.txt",
}
_PROGRAMS = "tools.programs.production"
_ENVIRONMENT = {
    "XLA_FLAGS": "--xla_dump_compact_gte=false",
    # Names files from the project or the package on, whatever folder they lie in.
    "JAX_HLO_SOURCE_FILE_CANONICALIZATION_REGEX": (
        r".*/(?=tools/|src/hlomem/)|.*/site-packages/|.*/lib/(?=python)"
    ),
}
_TIMEOUT = 600.0


def compile_entry(name: str, chip: str, home: Path, module: str = _PROGRAMS) -> None:
    """One program, compiled for a chip."""
    job = Job(factory=f"{module}:program", target=f"tpu-{chip}", settings={"name": name})
    with tempfile.TemporaryDirectory() as folder:
        planned = plan_in_child(job, timeout=_TIMEOUT, output=Path(folder))
        home.mkdir(parents=True)
        for path in Path(folder).iterdir():
            if f".{planned.facts.module_name}." not in path.name:
                continue
            for suffix, own in FILES.items():
                if path.name.endswith(suffix):
                    shutil.copyfile(path, home / own)
    meta = {
        "program": name,
        "dump": f"tpu-{CHIPS[chip]}-{planned.facts.versions['libtpu']}",
        "backend": "tpu",
        "chip": CHIPS[chip],
        "era": "K",
        "versions": planned.facts.versions,
        "scheduled": True,
    }
    (home / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("chips")
    parser.add_argument("program", nargs="*")
    parser.add_argument("--of", default=_PROGRAMS, help="default: %(default)s")
    options = parser.parse_args()
    os.environ.update(_ENVIRONMENT)
    from tools.programs.production import PRODUCTION_PROGRAMS  # noqa: PLC0415 - needs jax

    failed = 0
    for name in options.program or PRODUCTION_PROGRAMS:
        for chip in options.chips.split(","):
            home = options.folder / chip / name
            if home.exists():
                continue
            try:
                compile_entry(name, chip, home, options.of)
                sys.stdout.write(f"{chip}/{name}\n")
            except HlomemError as error:
                failed += 1
                sys.stdout.write(f"{chip}/{name}: {error}\n")
            sys.stdout.flush()
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
