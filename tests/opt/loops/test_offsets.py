"""What slices and loops say of iterations follows them into other loops."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hlomem import hlo
from hlomem.opt.loops.offsets import Moved, move_offset, moved_by, renumber_counters

_PROGRAM = """HloModule m, is_scheduled=true

ENTRY %main (w: f32[4,2], i: s32[]) -> f32[1,2] {
  %w = f32[4,2]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %s = f32[1,2]{1,0} dynamic-slice(%w, %i, %zero), dynamic_slice_sizes={1,2}, OWN
}
"""


def _slice(config: dict[str, Any]) -> hlo.HloInstruction:
    return hlo.parse(_PROGRAM.replace("OWN", f"backend_config={json.dumps(config)}")).entry.root


def _note(instruction: hlo.HloInstruction) -> Any:
    return json.loads(instruction.attributes["backend_config"])["dynamic_slice_config"]


@pytest.mark.parametrize(
    ("counterparts", "moved"),
    [
        ((3, 2, 1, 0), Moved(3, -1)),
        ((0, 1, 2), Moved(0, 1)),
        ((2,), Moved(2, 0)),
        ((0, 2, 1), None),
    ],
)
def test_iterations_that_follow_evenly_are_told(
    counterparts: tuple[int, ...], moved: Moved | None
) -> None:
    assert moved_by(counterparts) == moved


@pytest.mark.parametrize("is_linear", [False, True])
def test_a_slice_begins_where_its_counterpart_did(is_linear: bool) -> None:
    line = {"byte_offset": "8", "byte_stride": "16"}
    note = {"loop_index": "0", **({"linear": line} if is_linear else line)}
    one = _slice({"dynamic_slice_config": note})
    assert move_offset(one, Moved(3, -1))
    said = _note(one).get("linear", _note(one))
    assert (said["byte_offset"], said["byte_stride"]) == ("56", "-16")


@pytest.mark.parametrize(
    "note",
    [
        {"loop_index": "1", "byte_offset": "0", "byte_stride": "8"},
        {"loop_index": "0", "table": ["0", "8"]},
    ],
)
def test_what_cannot_be_said_of_another_loop_is_not_changed(note: dict[str, Any]) -> None:
    one = _slice({"dynamic_slice_config": note})
    assert not move_offset(one, Moved(3, -1))
    assert _note(one) == note


def test_a_loop_says_which_element_counts_where_it_is_now() -> None:
    counting = {
        "known_induction_variable": {"tuple_index": "2"},
        "dynamic_variables": [{"tuple_index": "3", "step": "2"}, {"tuple_index": "1"}],
    }
    one = _slice(counting)
    renumber_counters(one, {0: 0, 2: 1, 3: 2})
    said = json.loads(one.attributes["backend_config"])
    assert said["known_induction_variable"] == {"tuple_index": "1"}
    assert said["dynamic_variables"] == [{"tuple_index": "2", "step": "2"}]
    renumber_counters(one, {0: 0})
    assert "known_induction_variable" not in json.loads(one.attributes["backend_config"])
