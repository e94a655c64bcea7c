"""Compiles the modules of tools/texts, and keeps what XLA writes about them.

    python -m tools.record_texts [NAME...]

Runs in an environment with jax and the compilers of the targets; no such device is needed. A text
begins with a comment, `// TARGET[, TARGET...]: what it shows`. Writes what XLA dumps to
tests/goldens/xla. XLA may refuse to make code of a module once it is planned.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from hlomem.jax.target_kinds import parse_target
from tools.compile_xla_tests import ENVIRONMENT, compile_text, facts_of, keep_entry

TEXTS = Path(__file__).parent / "texts"
GOLDENS = Path(__file__).parent.parent / "tests" / "goldens" / "xla"


def record(path: Path, target_name: str) -> None:
    """Compile a text for a target, and keep what XLA wrote."""
    facts = facts_of(parse_target(target_name))
    package = "libtpu" if facts["backend"] == "tpu" else "jaxlib"
    machine = "-".join(filter(None, (facts["backend"], facts["chip"])))
    home = GOLDENS / f"{package}-{facts['versions'][package]}" / machine / path.stem
    with tempfile.TemporaryDirectory() as folder:
        try:
            compile_text(path.read_text(encoding="utf-8"), parse_target(target_name), Path(folder))
        except Exception as error:  # noqa: BLE001 - its class depends on the version of jaxlib
            sys.stderr.write(f"{path.stem}: {str(error).splitlines()[0]}\n")
        shutil.rmtree(home, ignore_errors=True)
        if not keep_entry(Path(folder), home):
            sys.exit(f"{path.stem}: no plan for {target_name}")
    origin = {"program": path.stem, **facts, "written_by": f"XLA, from tools/texts/{path.name}"}
    (home / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", help="default: all")
    names = parser.parse_args().name
    os.environ.update(ENVIRONMENT)
    for path in sorted(TEXTS.glob("*.hlo")):
        if not names or path.stem in names:
            head = path.read_text(encoding="utf-8").partition(": ")[0]
            for target in head.removeprefix("// ").split(", "):
                record(path, target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
