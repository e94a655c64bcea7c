"""Copies entries of a corpus of real XLA dumps into the project's goldens, with their origin.

    python tools/record_goldens.py CORPUS GROUP/PROGRAM...

Expected dumps come from XLA and from nowhere else: this only copies what XLA wrote, and writes
down in origin.json which XLA that was.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

GOLDENS = Path(__file__).parent.parent / "tests" / "goldens" / "xla"
FILES = (
    "module.hlo",
    "buffer-assignment.txt",
    "values.txt",
    "live-range.txt",
    "memory-usage-report.txt",
)


def record(entry: Path) -> Path:
    """Copies one entry; returns its new home, <version>/<platform>/<program>."""
    meta = json.loads((entry / "meta.json").read_text())
    package = "libtpu" if meta["backend"] == "tpu" else "jaxlib"
    platform = "-".join(filter(None, (meta["backend"], meta["chip"])))
    home: Path = GOLDENS / f"{package}-{meta['versions'][package]}" / platform / meta["program"]
    home.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if (entry / name).exists():
            shutil.copyfile(entry / name, home / name)
    origin = {key: meta[key] for key in ("program", "backend", "chip", "era", "versions")}
    origin["scheduled"] = meta["scheduled"]
    origin["written_by"] = "XLA, from a JAX program of that name"
    (home / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")
    return home


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("entry", nargs="+")
    options = parser.parse_args()
    for entry in options.entry:
        record(options.corpus / entry)


if __name__ == "__main__":
    main()
