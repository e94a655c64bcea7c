"""Records the goldens of scoped memory: what libtpu writes once it has generated code.

    .venv-jax/bin/python -m tools.record_scoped tests/goldens/scoped

Each is a dump of a program with a kernel, compiled for a TPU without one. The bodies of kernels are
cut out of the texts, and so are flags other than the limit of scoped memory.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax

from hlomem.jax.compile.programs import place
from hlomem.jax.target_kinds import parse_target
from tools.programs.kernels.in_programs import layers

_PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "layers": ("tpu-v5e:2x2", {}),
    "layers_limit": ("tpu-v5e:2x2", {"xla_tpu_scoped_vmem_limit_kib": 65536}),
    "layers_v6e": ("tpu-v6e:2x2", {}),
}
_FILES = {
    "after_optimizations-buffer-assignment.txt": "buffer-assignment.txt",
    "after_optimizations-buffer-assignment-values.txt": "values.txt",
    "after_optimizations-live-range.txt": "live-range.txt",
    "after_optimizations.txt": "module.hlo",
    "after_codegen.txt": "after_codegen.txt",
    "tpu_comp_env.txt": "tpu_comp_env.txt",
    "target_arguments.txt": "target_arguments.txt",
}
_BODY = re.compile(r'"(body|debug_locations)":"[A-Za-z0-9+/=]*"')
_FRAMES = re.compile(r'"[^"\n]*/([\w-]+/\w+\.py)"')


def record(name: str, folder: Path) -> None:
    """Compile one program, and keep the texts of it that tests read."""
    target, options = _PROGRAMS[name]
    function, arguments = layers()
    shapes = place(tuple(arguments), {}, parse_target(target))[0]
    with TemporaryDirectory() as dump:
        given = {"xla_dump_to": dump, "xla_dump_hlo_as_text": True, **options}
        jax.jit(function).lower(*shapes).compile(compiler_options=given)
        texts = {path.name: path.read_text() for path in Path(dump).iterdir() if path.is_file()}
    made = folder / name
    made.mkdir(parents=True, exist_ok=True)
    for ending, short in _FILES.items():
        [text] = [text for file, text in texts.items() if file.endswith(f".{ending}")]
        (made / short).write_text(_trimmed(text, short))
    origin = {
        "program": "tools/programs/kernels/in_programs.py:layers",
        "target": target,
        "options": options,
        "versions": {package: version(package) for package in ("jax", "jaxlib", "libtpu")},
        "written_by": "libtpu; bodies of kernels, most flags and folders of files are cut out",
    }
    (made / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")


def _trimmed(text: str, short: str) -> str:
    if short == "tpu_comp_env.txt":
        kept = [line for line in text.split("\n") if line.startswith("xla_tpu_scoped_vmem_limit")]
        return "\n".join(kept) + "\n"
    return _FRAMES.sub(r'"/home/user/\1"', _BODY.sub(r'"\1":""', text))


if __name__ == "__main__":
    for one in _PROGRAMS:
        record(one, Path(sys.argv[1]))
