"""Sharing answers as the rules do, and asks them once."""

from __future__ import annotations

import pytest

from hlomem.analysis.alias_rules import can_share_operand_buffer
from hlomem.assign import sharing
from hlomem.hlo.shape import ROOT_INDEX
from tests.assign.programs import module_of, state

TEXT = module_of(
    "%n = f32[64]{0} negate(%a)",
    "%r = f32[64]{0} reverse(%n), dimensions={0}",
    "ROOT %s = f32[64]{0} add(%r, %b)",
)


def test_a_question_is_answered_as_by_the_rules_and_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = state(TEXT).timeless
    asked: list[str] = []

    def ask(*question: object) -> bool:
        asked.append(str(question[3]))
        return can_share_operand_buffer(*question)  # type: ignore[arg-type]

    monkeypatch.setattr(sharing, "can_share_operand_buffer", ask)
    answers = problem.sharing
    _, _, negate, reverse, add = problem.dataflow.module.entry.instructions
    for _ in range(2):
        assert not answers.is_allowed(negate, ROOT_INDEX, reverse, ROOT_INDEX)
        assert answers.is_allowed(reverse, ROOT_INDEX, add, ROOT_INDEX)
    assert asked == ["<reverse %r>", "<add %s>"]


def test_what_may_share_with_no_operand_is_known_without_a_question() -> None:
    problem = state(TEXT).timeless
    _, _, negate, reverse, _ = problem.dataflow.module.entry.instructions
    assert problem.sharing.is_possible(negate)
    assert not problem.sharing.is_possible(reverse)
