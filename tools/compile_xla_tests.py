"""Compiles the modules of XLA's own tests, into entries like those of the corpus.

    python -m tools.compile_xla_tests XLA FOLDER TARGET [--sample N] [--seed N] [--only KEY...]

Runs in an environment with jax and, for a TPU or a GPU, its compiler; no such device is needed. XLA
is a clone of openxla/xla (its `.git`, or a bare one): every text of a module in a test or in a file
`*.hlo` of its HEAD is taken. Each that TARGET (`cpu`, `tpu-v5e`, `cuda-h200`) compiles becomes
FOLDER/TARGET/KEY, as `tools.check_contact` reads it; KEY is the beginning of the text's SHA-1.
Modules compile in a child that is started again where XLA aborts or hangs. What is there already is
left alone; the answers for the rest are kept in FOLDER/TARGET/refused.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import selectors
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.xla_texts import find_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.jax.target_kinds import Target

_COUNT = r"\b{}=([0-9]{{1,4}})"
_FILES = {
    "after_optimizations.txt": "module.hlo",
    "-buffer-assignment.txt": "buffer-assignment.txt",
    "-buffer-assignment-values.txt": "values.txt",
    "-live-range.txt": "live-range.txt",
    "-memory-usage-report.txt": "memory-usage-report.txt",
}
_PLAN = "buffer-assignment.txt"
_SECONDS = 40
ENVIRONMENT = {
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # compiling needs no library of NVIDIA's
}


def compile_text(text: str, target: Target, folder: Path) -> None:
    """Compile a module, its dump left in a folder; raises what XLA raises."""
    extension: Any = import_module("jaxlib._jax")
    compiler: Any = import_module("jax._src.compiler")
    proto = import_module("jaxlib._hlo").hlo_module_from_text(text)
    program = extension.mlir.hlo_to_stablehlo(proto.as_serialized_hlo_module_proto())
    replicas, partitions = _count("replica_count", text), _count("num_partitions", text)
    numpy: Any = import_module("numpy")
    devices = target.devices[: replicas * partitions]
    if len(devices) < replicas * partitions:
        raise ValueError("more devices than the target has")
    options = compiler.get_compile_options(
        replicas,
        partitions,
        numpy.array(devices).reshape(replicas, partitions),
        {
            "xla_dump_to": str(folder),
            "xla_dump_hlo_as_text": True,
            "xla_dump_compact_gte": False,
        },
    )
    interpreters: Any = import_module("jax._src.interpreters.mlir")
    ir: Any = import_module("jaxlib.mlir.ir")
    with interpreters.make_ir_context():
        module = ir.Module.parse(program)
        compiler.backend_compile_and_load(
            devices[0].client, module, extension.DeviceList(tuple(devices)), options, ()
        )


def _count(name: str, text: str) -> int:
    header = text.partition("\n")[0]
    found = re.search(_COUNT.format(name), header)
    return int(found[1]) if found else 1


def keep_entry(dump: Path, home: Path, *, needs_all: bool = True) -> bool:
    """Make an entry of a dump's files; false where there is no plan among them.

    Before jaxlib 0.10 one file says what several do since: `needs_all` is for those.
    """
    plans = sorted(path for path in dump.iterdir() if path.name.endswith(f"-{_PLAN}"))
    if not plans:
        return False
    # The first word of a name is the number of the module: a program may have been split.
    number = max(plans, key=lambda path: path.stat().st_size).name.partition(".")[0]
    parts = {}
    for path in sorted(dump.iterdir()):
        for suffix, own in _FILES.items():
            if path.name.partition(".")[0] == number and path.name.endswith(suffix):
                parts[own] = path
    if len(parts) < (len(_FILES) if needs_all else 2):
        return False
    home.mkdir(parents=True)
    for own, path in parts.items():
        shutil.copyfile(path, home / own)
    return True


def facts_of(target: Target) -> dict[str, Any]:
    """The facts about what is compiled for a target here."""
    versions = {}
    for package in ("jax", "jaxlib", *(["libtpu"] if target.family == "tpu" else [])):
        versions[package] = version(package)
    chip = target.machine.chip
    return {
        "backend": target.machines,
        "chip": chip.name if chip else target.chip,
        "era": "K",
        "versions": versions,
        "scheduled": True,
    }


def serve(target_name: str, home: Path) -> int:
    """The child: texts come as JSON, one a line, and so do answers go."""
    from hlomem.jax.target_kinds import parse_target  # noqa: PLC0415 - the child's alone

    target = parse_target(target_name)
    facts = {"dump": f"xla-tests-{target_name}", **facts_of(target)}
    for line in sys.stdin:
        key, text = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            try:
                compile_text(text, target, Path(folder))
                answer = ""
            except Exception as error:  # noqa: BLE001 - its class depends on the version of jaxlib
                answer = f"{type(error).__name__}: {str(error)[:300]}"
            if keep_entry(Path(folder), home / key):
                meta = json.dumps({"program": key} | facts, indent=1)
                (home / key / "meta.json").write_text(f"{meta}\n")
                answer = "compiled"
        sys.stdout.write(f"{json.dumps(answer or 'no plan')}\n")
        sys.stdout.flush()
    return 0


class _Child:
    """A process that compiles, started when first asked and again after it died."""

    def __init__(self, target: str, home: Path) -> None:
        self._command = [sys.executable, "-m", "tools.compile_xla_tests", "--serve"]
        self._command += [str(home), target]
        self._process: subprocess.Popen[str] | None = None

    def ask(self, key: str, text: str) -> str:
        """The answer about one text."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=os.environ | ENVIRONMENT,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps([key, text])}\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            is_there = bool(selector.select(_SECONDS))
        line = process.stdout.readline() if is_there else ""
        if line:
            return str(json.loads(line))
        self.end()
        return "aborted" if is_there else "hangs"

    def end(self) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("xla", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("target")
    parser.add_argument("--sample", type=int, help="this many, drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], help="these texts")
    options = parser.parse_args(arguments)
    texts = find_texts(options.xla)
    keys = sorted(options.only or texts)
    random.Random(options.seed).shuffle(keys)  # noqa: S311 - a sample
    home = options.folder / options.target
    home.mkdir(parents=True, exist_ok=True)
    record = home / "refused.json"
    refused = json.loads(record.read_text()) if record.exists() else {}
    child = _Child(options.target, home)
    for key in keys[: options.sample]:
        if key in refused or (home / key).exists():
            continue
        answer = child.ask(key, texts[key])
        if answer != "compiled":
            refused[key] = answer
            record.write_text(json.dumps(refused, indent=1) + "\n")
    child.end()
    kinds = Counter(answer.partition(":")[0] for answer in refused.values())
    sys.stdout.write(
        f"{len(texts)} texts, {len(list(home.glob('*/meta.json')))} compiled; {dict(kinds)}\n"
    )
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        sys.exit(serve(sys.argv[3], Path(sys.argv[2])))
    sys.exit(main())
