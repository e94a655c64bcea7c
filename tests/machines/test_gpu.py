"""GPUs."""

from __future__ import annotations

from msgspec.structs import asdict

from hlomem.machines.gpu import GPU, MACHINES


def test_chips_differ_in_their_memory_alone() -> None:
    numbers = [{**asdict(machine), "chip": None} for machine in MACHINES]
    assert numbers == [asdict(GPU)] * len(MACHINES)


def test_memory_that_jax_reserves_is_said_and_not_taken_off() -> None:
    for machine in MACHINES[1:]:
        assert machine.chip is not None
        assert "75%" in machine.chip.note
        assert machine.chip.is_nominal
        assert machine.chip.size == machine.chip.gibibytes * 2**30
