"""Forward, backward, recomputed: as JAX names operations."""

from __future__ import annotations

from itertools import pairwise

import pytest

import hlomem
from hlomem.report.data.memory import build_memory
from hlomem.report.data.phases import BACKWARD, FORWARD, RECOMPUTED, build_phases, phase_of
from tests.places import GOLDENS


@pytest.mark.parametrize(
    ("operation", "phase"),
    [
        ("jit(step)/jvp(Block)/dot_general", FORWARD),
        ("jit(step)/transpose(jvp(Block))/dot_general", BACKWARD),
        ("jit(step)/transpose(jvp(Block))/rematted_computation/dot_general", RECOMPUTED),
        ("jit(step)/add", None),
        (None, None),
    ],
)
def test_an_operations_name_tells_its_phase(operation: str | None, phase: str | None) -> None:
    assert phase_of(operation) == phase


@pytest.mark.parametrize("program", ["gpt", "gpt_remat"])
def test_phases_of_a_training_step_are_in_order_and_apart(program: str) -> None:
    memory = build_memory(hlomem.load(GOLDENS / "trials/tpu" / program))
    phases = build_phases(memory)
    assert phases[0].name == FORWARD
    assert (RECOMPUTED in {phase.name for phase in phases}) == (program == "gpt_remat")
    for phase, following in pairwise(phases):
        assert phase.start <= phase.end < following.start
        assert phase.name != following.name
    assert phases[-1].end < memory.steps


def test_a_program_without_a_backward_pass_has_none() -> None:
    memory = build_memory(hlomem.load(GOLDENS / "trials/tpu/decode"))
    assert build_phases(memory) == ()
