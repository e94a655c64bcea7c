"""Which operand an opcode may be written over, by how it reads it."""

from __future__ import annotations

import pytest

from hlomem.analysis.alias_rules import why_not_by_opcode
from hlomem.analysis.machine_rules import DEFAULT_RULES
from hlomem.analysis.overwriting import NOT_ELEMENTWISE, WHY_NOT, Reading
from hlomem.hlo.opcodes import Opcode, opcodes_where


@pytest.mark.parametrize(
    ("opcode", "reading", "is_allowed"),
    [
        ("sort", Reading([0], 1, (), 1), True),
        ("sort", Reading([0], 1, (), 2), False),
        ("sort", Reading([1], 2, (1,), 1), True),
        ("sort", Reading([1], 2, (0,), 1), False),
        ("dynamic-update-slice", Reading([0], 3, (), 1), True),
        ("dynamic-update-slice", Reading([0, 1], 3, (), 1), False),
        ("triangular-solve", Reading([1], 2, (), 4), True),
        ("triangular-solve", Reading([0], 2, (), 1), False),
        ("while", Reading([0], 1, (), 1), True),
        ("custom-call", Reading([0], 1, (), 1), False),
    ],
)
def test_opcodes_with_a_rule_of_their_own(
    opcode: Opcode, reading: Reading, is_allowed: bool
) -> None:
    assert (WHY_NOT[opcode](reading) == "") is is_allowed


def test_an_opcode_alone_tells_of_some() -> None:
    once = Reading([0], 1, (), 1)
    assert why_not_by_opcode("add", once, DEFAULT_RULES) == ""
    assert why_not_by_opcode("dot", once, DEFAULT_RULES) == NOT_ELEMENTWISE
    assert why_not_by_opcode("fusion", once, DEFAULT_RULES) is None
    assert why_not_by_opcode("map", once, DEFAULT_RULES) is None


def test_every_word_for_sharing_has_a_rule() -> None:
    assert frozenset(WHY_NOT) == opcodes_where(lambda traits: traits.shares)
