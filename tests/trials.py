"""The programs in tests/goldens/trials, compiled as users compile them, with what JAX said."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import hlomem
from hlomem.api.folder import list_modules
from hlomem.api.load import find_program
from hlomem.report.data.memory import MemoryView, build_memory
from tests.places import GOLDENS

TRIALS = GOLDENS / "trials"


class Trial(NamedTuple):
    """One function of a trial's program."""

    folder: Path
    module: str
    function: str
    jax: dict[str, Any]
    """Fields of `memory_analysis()`; empty where the program did not fit and JAX gave none."""

    @property
    def name(self) -> str:
        """`tpu/gpt train_step`."""
        return f"{self.folder.parent.name}/{self.folder.name} {self.function}"

    def memory(self) -> MemoryView:
        """Its memory, with source lines."""
        return trial_memory(self.folder, self.module)


@lru_cache(maxsize=4)
def trial_memory(folder: Path, module: str) -> MemoryView:
    """The memory of one module of a folder."""
    return build_memory(hlomem.load(folder, module=module), find_program(str(folder), module))


def find_trials() -> list[Trial]:
    """Every function the trials are about; the small modules JAX compiles besides are left out."""
    found = []
    for folder in sorted(TRIALS.glob("*/*")):
        origin = json.loads((folder / "origin.json").read_text())
        said = {each["function"]: each for each in origin["memory_analysis"] or ()}
        names = [module.name for module in list_modules(folder)]
        for name in names:
            function = name.split(".")[1].removeprefix("jit_")
            if function not in {"stage", "_threefry_seed"}:
                found.append(Trial(folder, name, function, said.get(function, {})))
    return found


def trial(name: str, function: str = "train_step") -> MemoryView:
    """The memory of a trial by its folder: `tpu/gpt`."""
    [wanted] = [each for each in find_trials() if each.name == f"{name} {function}"]
    return wanted.memory()
