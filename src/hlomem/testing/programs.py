"""The dumps of a baseline's programs, for saying in full what has changed since.

In: a folder, and the key of a test. Out: the program's memory as it was. A program has a folder of
its own in it, with XLA's files by their short names, and its HLO text, all gzipped.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from typing import TYPE_CHECKING

from hlomem import hlo
from hlomem.api.opening import open_memory
from hlomem.base.atomic_files import write_files
from hlomem.dump.file_names import FILE_NAMES

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.api.explain import MemoryExplanation
    from hlomem.report.data.memory import MemoryView

_MAX_NAME = 60


def folder_of(folder: Path, key: str) -> Path:
    """The folder the program of a test is kept in."""
    readable = re.sub(r"[^\w.-]+", "-", key).strip("-")[-_MAX_NAME:]
    return folder / f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def save_program(folder: Path, key: str, memory: MemoryExplanation) -> None:
    """Keep a program's dump; the same dump gives the same bytes."""
    dump, module = memory.memory.dump, memory.memory.module
    texts = {FILE_NAMES[part.kind].short: dump.part_text(part) for part in dump.parts}
    if module is not None:
        texts["module.hlo"] = hlo.format_module(module)
    packed = {
        f"{name}.gz": [gzip.compress(text.encode("utf-8", "surrogateescape"), mtime=0)]
        for name, text in texts.items()
    }
    write_files(folder_of(folder, key), packed, force=True)


def open_program(folder: Path, key: str) -> MemoryView | None:
    """A program as it was; None where it was not kept."""
    path = folder_of(folder, key)
    return open_memory(path) if path.is_dir() else None
