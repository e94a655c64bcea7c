"""Shapes that are left out are those XLA infers; what it does not infer has to be written."""

from __future__ import annotations

import pytest

from hlomem.base.errors import ParseError
from hlomem.hlo import parse
from hlomem.hlo.shape_inference.rules import RULES
from tests.hlo.shape_inference.cases import instructions, module
from tests.hlo.text.freeform.goldens import INFERRED


def test_xla_was_asked_about_every_case() -> None:
    assert list(INFERRED) == instructions()


@pytest.mark.parametrize("case", [case for case in instructions() if INFERRED[case]])
def test_shape_is_the_one_xla_infers(case: str) -> None:
    assert parse(module(case)).entry.root.shape.text == INFERRED[case]


@pytest.mark.parametrize("case", [case for case in instructions() if not INFERRED[case]])
def test_refused_where_xla_infers_none(case: str) -> None:
    with pytest.raises(ParseError, match="cannot be inferred") as caught:
        parse(module(case))
    assert (
        f"ROOT r = {case.partition('(')[0]}"
        in caught.value.source.text.split("\n")[caught.value.line - 1]
    )


def test_every_rule_has_a_case() -> None:
    of_cases = {case.partition("(")[0] for case in instructions() if INFERRED[case]}
    shared = {id(rule) for opcode, rule in RULES.items() if opcode in of_cases}
    assert [opcode for opcode, rule in RULES.items() if id(rule) not in shared] == []
