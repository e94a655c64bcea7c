"""What XLA moves, compresses, copies and converts, and what it was before."""

from __future__ import annotations

from hlomem.report.data.value_roles import Movements
from tests.trials import trial


def _words(name: str, function: str) -> dict[str, set[bool]]:
    memory = trial(name, function)
    movements = Movements(memory.joined, memory.space_name)
    found: dict[str, set[bool]] = {}
    for placed in memory.joined.placed:
        if (moved := movements.find(placed)) is not None:
            assert moved.source is not placed
            found.setdefault(moved.how, set()).add(moved.keeps_role)
    return found


def test_a_move_between_memories_keeps_what_a_value_is() -> None:
    found = _words("tpu/gpt", "train_step")
    assert found["moved from vmem to hbm"] == {True}
    assert found["moved from hbm to vmem"] == {True}
    assert found["copied"] == {False}


def test_a_cpu_has_one_memory_and_copies_stay_copies() -> None:
    found = _words("cpu/gpt", "train_step")
    assert found["copied"] == {False}
    assert not any(how.startswith("moved") for how in found)
