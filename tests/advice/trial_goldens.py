"""Programs as users compile them, and what XLA saved when one thing in them was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.api.advise import advise
from hlomem.api.load import find_program, load
from tests.conftest import GOLDENS

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.report.data.advice import Advice, AdviceReport

TRIALS = GOLDENS / "trials"
FOLDERS = sorted(path.parent for path in TRIALS.glob("*/*/origin.json"))


def assignments(folder: Path) -> list[Path]:
    """The buffer assignments of a run."""
    return sorted(folder.glob("*after_optimizations-buffer-assignment.txt*"))


def file_of(name: str, function: str) -> Path:
    """The buffer assignment of a function of a run: `cpu/gpt`, `train_step`."""
    [path] = (TRIALS / name).glob(f"*jit_{function}.*after_optimizations-buffer-assignment.txt*")
    return path


def advised(name: str, function: str = "train_step") -> AdviceReport:
    """What is advised on a program and its module."""
    path = file_of(name, function)
    return advise(load(path), module=find_program(str(path)))


def advice_of(name: str, rule: str, function: str = "train_step", argument: str = "") -> Advice:
    """The advice of a rule, about some argument where it is given."""
    [found] = [
        each
        for each in advised(name, function).advice
        if each.rule == rule and argument in {"", each.argument}
    ][: None if argument else 1]
    return found


def reserved(name: str, function: str = "train_step") -> int:
    """What XLA reserved in the main memory."""
    assignment = load(file_of(name, function)).assignment
    assert assignment is not None
    return sum(each.size for each in assignment.allocations if each.color == 0)


def saved_by_xla(before: str, after: str, function: str = "train_step") -> int:
    """What XLA reserved less after a change."""
    return reserved(before, function) - reserved(after, function)


def holds(advice: Advice, saved: int) -> bool:
    """What was saved lies in the range that was promised, or a twentieth outside."""
    assert advice.least is not None
    assert advice.most is not None
    return advice.least * 0.95 <= saved <= advice.most * 1.05
