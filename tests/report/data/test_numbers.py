"""What a program needs, and its peak, against what JAX says of the same compile."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

import pytest

from hlomem.report.data.allocation_kinds import (
    ARGUMENTS,
    DONATED,
    HELD_WHOLE,
    RESULTS,
    TEMPORARIES,
    kind_of,
)
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import MemoryView
from hlomem.report.data.peak import NOWHERE, build_snapshot
from tests.trials import Trial, find_trials, trial

TRIALS = find_trials()
MEASURED = [each for each in TRIALS if "total_allocation_bytes" in each.jax]
ON_TPU = [each for each in MEASURED if each.folder.parent.name == "tpu"]


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: case.name)
def test_what_a_program_needs_is_jaxs_total_to_the_byte(case: Trial) -> None:
    memory = case.memory()
    assert find_space(memory).size == case.jax["total_allocation_bytes"]


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: case.name)
def test_arguments_results_and_donations_are_jaxs_to_the_byte(case: Trial) -> None:
    sizes: Counter[str] = Counter()
    for allocation in case.memory().joined.allocations:
        if allocation.color == 0:
            sizes[kind_of(allocation)] += allocation.size
    assert sizes[ARGUMENTS] + sizes[DONATED] == case.jax["argument_size_in_bytes"]
    assert sizes[RESULTS] + sizes[DONATED] == case.jax["output_size_in_bytes"]
    assert sizes[DONATED] == case.jax["alias_size_in_bytes"]
    if case.folder.parent.name == "cpu":
        assert sizes[TEMPORARIES] == case.jax["temp_size_in_bytes"]


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: case.name)
def test_the_host_has_what_jax_says_it_has(case: Trial) -> None:
    spaces = {space.name: space.size for space in case.memory().spaces}
    assert spaces.get("host", 0) == case.jax["host_temp_size_in_bytes"]


def _vmem_counted_twice(memory: MemoryView) -> int:
    """The most that is alive in VMEM at once, bytes that values share counted for each."""
    changes = [0] * (memory.steps + 2)
    for buffer in memory.buffers:
        if buffer.color == 1 and buffer.start is not None and buffer.end is not None:
            changes[buffer.start] += buffer.size
            changes[buffer.end + 1] -= buffer.size
    return max(accumulate(changes))


@pytest.mark.parametrize("case", ON_TPU, ids=lambda case: case.name)
def test_the_peak_is_jaxs_unless_jax_counts_vmem(case: Trial) -> None:
    """JAX adds to arguments and results the temporaries of one space: HBM, or VMEM where the sum
    of its values is larger. The first is right, but for alignment."""
    memory = case.memory()
    timeline = memory.timeline(0)
    assert timeline is not None
    allocations = [each for each in memory.joined.allocations if each.color == 0]
    held = sum(each.size for each in allocations if kind_of(each) in HELD_WHOLE)
    said = case.jax["peak_memory_in_bytes"]
    if said - held == _vmem_counted_twice(memory) > timeline.peak.size - held:
        return
    assert said <= timeline.peak.size <= said + 64 * 1024


def test_jax_counts_vmem_in_few_trials() -> None:
    peaks = [(each.memory().timeline(0), each.jax["peak_memory_in_bytes"]) for each in ON_TPU]
    agreeing = [peak for timeline, peak in peaks if timeline and timeline.peak.size >= peak]
    assert len(agreeing) >= 0.7 * len(ON_TPU)


@pytest.mark.parametrize("backend", ["cpu", "tpu"])
def test_donating_lowers_the_peak(backend: str) -> None:
    before = trial(f"{backend}/gpt").timeline(0)
    after = trial(f"{backend}/gpt_donate").timeline(0)
    assert before is not None
    assert after is not None
    assert after.peak.size < before.peak.size


@pytest.mark.parametrize("case", TRIALS, ids=lambda case: case.name)
def test_nearly_all_bytes_of_the_peak_have_a_line(case: Trial) -> None:
    memory = case.memory()
    alive = build_snapshot(memory, find_space(memory), by="line")
    without = sum(row.size for row in alive.rows if row.key == NOWHERE)
    assert without <= 0.02 * alive.size
