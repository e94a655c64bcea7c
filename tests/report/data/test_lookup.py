"""What people type, found or answered with what there is."""

from __future__ import annotations

import pytest

import hlomem
from hlomem.base.errors import CommandError
from hlomem.report.data.lookup import find_buffer, find_space, find_step
from hlomem.report.data.memory import MemoryView, build_memory
from tests.places import GOLDENS

SEED_003 = GOLDENS / "seeds" / "003_e0d5fae9bf2de249.txt"


@pytest.fixture(scope="module")
def memory() -> MemoryView:
    return build_memory(hlomem.load(SEED_003))


def test_every_name_finds_its_own(memory: MemoryView) -> None:
    for buffer in memory.buffers:
        assert find_buffer(memory, f"<{buffer.id}>") is buffer
        assert find_buffer(memory, buffer.name).name == buffer.name
    for step, name in enumerate(memory.joined.sequence):
        assert find_step(memory, name) == find_step(memory, str(step)) == step
    for space in memory.spaces:
        assert find_space(memory, space.name) == find_space(memory, str(space.color)) == space


def test_the_largest_part_stands_for_an_instruction(memory: MemoryView) -> None:
    parts = [each for each in memory.buffers if each.name.startswith("copy-start{")]
    assert find_buffer(memory, "copy-start").size == max(each.size for each in parts)


def test_the_first_space_of_a_tpu_is_its_hbm(memory: MemoryView) -> None:
    assert find_space(memory, "hbm") == find_space(memory) == memory.spaces[0]


def test_what_is_not_there_is_said_with_what_is(memory: MemoryView) -> None:
    with pytest.raises(CommandError, match="no step 999: the last is"):
        find_step(memory, "999")
    with pytest.raises(CommandError, match=r"no instruction `copi.3` .*did you mean copy.3"):
        find_step(memory, "copi.3")
