"""The recorded protos, and the text dumps of the same compiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from tests.places import GOLDENS

PROTOS = GOLDENS / "protos"
FOLDERS = sorted(path.parent for path in PROTOS.glob("*/origin.json"))
NAMES = [folder.name for folder in FOLDERS]


class Sample(NamedTuple):
    """One file that holds a program and its plan, and the folder of its text dump."""

    path: Path
    folder: Path

    @property
    def name(self) -> str:
        """What tests call it."""
        return f"{self.folder.name}/{self.path.name[:20]}"

    @property
    def machine(self) -> dict[str, str]:
        """The arguments of `plan` that say what it was compiled for."""
        origin = json.loads((self.folder / "origin.json").read_text())
        return {"backend": origin["backend"], "chip": origin["chip"]}

    @property
    def module(self) -> str:
        """What its program is called."""
        head = (self.folder / "module.hlo").read_text().split(",", 1)[0]
        return head.removeprefix("HloModule ")


_NOT_TEXT = {".pb", ".bin"}
SAMPLES = [
    Sample(path, folder)
    for folder in FOLDERS
    for path in sorted([*folder.iterdir(), *folder.glob("cache/jit_train_step*")])
    if path.suffix in _NOT_TEXT or path.name.endswith("-cache")
]
