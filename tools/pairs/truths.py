"""The pairs that `tools.pairs.record` wrote, and what a command says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TIMEOUT_SECONDS = 300


def dump_of(folder: Path) -> Path:
    """The buffer assignment of the largest module of a folder, whose name commands take."""
    files = folder.glob("*after_optimizations-buffer-assignment.txt")
    return max(files, key=lambda path: path.stat().st_size)


def ask(*arguments: str | Path) -> Any:
    """What a command answers as JSON; its error's first line, as text, where it fails."""
    line = [sys.executable, "-m", "hlomem", *map(str, arguments), "--json"]
    done = subprocess.run(
        line, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS
    )
    if done.returncode:
        return (done.stderr.strip() or "no output").splitlines()[0]
    return json.loads(done.stdout)


def iter_truths(folder: Path, names: list[str]) -> Iterator[tuple[dict[str, Any], Path]]:
    """The pairs of a folder, or those named."""
    for path in sorted(folder.glob("*/truth.json")):
        truth = json.loads(path.read_text())
        if not names or truth["name"] in names:
            yield truth, path.parent
