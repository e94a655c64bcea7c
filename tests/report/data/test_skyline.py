"""The layers of the skyline are the timeline, by role."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlomem
from hlomem.report.data import roles
from hlomem.report.data.memory import build_memory
from hlomem.report.data.timeline import Layer, build_skyline
from tests.places import GOLDENS


def heights(layers: Iterable[Layer], length: int) -> list[int]:
    """The layers' sum at each step."""
    changes = [0] * (length + 1)
    for layer in layers:
        for step, change in zip(layer.steps, layer.changes, strict=True):
            changes[step] += change
    return list(accumulate(changes[:length]))


DUMPS = [*sorted((GOLDENS / "seeds").glob("*.txt")), *sorted((GOLDENS / "xla").glob("*/*/*"))]


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: "/".join(p.parts[-3:]))
def test_layers_add_up_to_the_timeline(path: Path) -> None:
    memory = build_memory(hlomem.load(path))
    for space in memory.spaces:
        timeline = memory.timeline(space.color)
        assert timeline is not None
        layers = build_skyline(memory, space.color)
        assert heights(layers, memory.steps + 1) == list(timeline.sizes)
        order = list(roles.MEANING)
        assert [layer.role for layer in layers] == sorted(
            {layer.role for layer in layers}, key=order.index
        )


@pytest.mark.parametrize("path", DUMPS[::9], ids=lambda p: "/".join(p.parts[-3:]))
@settings(max_examples=5, deadline=None)
@given(share=st.floats(0, 1))
def test_each_layer_is_what_the_buffers_of_its_role_own(path: Path, share: float) -> None:
    memory = build_memory(hlomem.load(path))
    step = round(share * memory.steps)
    for space in memory.spaces:
        owned: dict[str, int] = {}
        for buffer, size in memory.alive(space.color, step):
            owned[buffer.role] = owned.get(buffer.role, 0) + size
        for layer in build_skyline(memory, space.color):
            assert heights([layer], memory.steps + 1)[step] == owned.get(layer.role, 0)


def test_a_dump_without_live_ranges_has_no_skyline(tmp_path: Path) -> None:
    text = next((GOLDENS / "xla").glob("jaxlib-0.12.0.1/cpu/*/buffer-assignment.txt")).read_text()
    alone = tmp_path / "x-buffer-assignment.txt"
    alone.write_text(text)
    memory = build_memory(hlomem.load(alone))
    assert build_skyline(memory, 0) == ()
