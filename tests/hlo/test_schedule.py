"""Orders of instructions."""

from __future__ import annotations

import re

import pytest

from hlomem.hlo import parse
from hlomem.hlo.schedule import (
    SequenceProblem,
    check_sequence,
    schedule_from_names,
    schedule_of,
)

TEXT = """\
HloModule m{header}

ENTRY %c {{
  %p = f32[] parameter(0)
  %a = f32[] negate(%p)
  ROOT %b = f32[] negate(%p)
}}
"""


def test_a_scheduled_module_runs_in_the_order_of_its_text() -> None:
    module = parse(TEXT.format(header=", is_scheduled=true"))
    schedule = schedule_of(module)
    assert schedule is not None
    assert schedule.sequence(module.entry) == module.entry.instructions


def test_an_unscheduled_module_has_no_schedule_of_its_own() -> None:
    module = parse(TEXT.format(header=""))
    assert schedule_of(module) is None
    schedule = schedule_from_names(module, {"c": ["p", "b", "a"]})
    assert [each.name for each in schedule.sequence(module.entry)] == ["p", "b", "a"]


def test_a_schedule_names_every_instruction_once() -> None:
    module = parse(TEXT.format(header=""))
    with pytest.raises(ValueError, match="`c`: the order must list every instruction once"):
        schedule_from_names(module, {"c": ["p", "p", "a"]})


@pytest.mark.parametrize(
    ("names", "step", "problem"),
    [
        (["p", "a", "b", "x"], 3, "the module runs no instruction `x`"),
        (["p", "p"], 1, "`p` appears twice in the sequence"),
        (["a", "p", "b"], 0, "`a` comes before its operand `p`"),
        (["p", "a"], 2, "the sequence lacks `b`"),
        ([], 0, "the sequence lacks `p`"),
    ],
)
def test_a_sequence_has_everything_that_runs_once_and_in_order(
    names: list[str], step: int, problem: str
) -> None:
    with pytest.raises(SequenceProblem, match=re.escape(problem)) as caught:
        check_sequence(parse(TEXT.format(header="")), names)
    assert caught.value.step == step
    check_sequence(parse(TEXT.format(header="")), ["p", "b", "a"])
