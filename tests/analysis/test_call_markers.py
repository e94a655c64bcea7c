"""Custom calls that mark inlined code."""

from __future__ import annotations

from hlomem.analysis.call_markers import is_call_marker
from hlomem.hlo.text.parser import parse
from tests.analysis.test_propagation import MARKED


def test_marks_are_known_by_their_targets() -> None:
    entry = parse(MARKED).entry
    found = [instruction.name for instruction in entry.instructions if is_call_marker(instruction)]
    assert found == ["before", "after"]
