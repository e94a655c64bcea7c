"""The order of XLA's lists, by which values are numbered and their positions listed."""

from __future__ import annotations

from tests.parity.dumps import read_golden, sort_written
from tests.places import GOLDENS
from tools.support import plan_entry, texts_of

LOOP_IN_CALL = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "nested_tuple_loop"


def test_calls_are_listed_last() -> None:
    """A call around a small loop stands before the loop's results in the text."""
    plan = plan_entry(LOOP_IN_CALL)
    made = sort_written(dict(zip(plan.files, texts_of(plan), strict=True)))
    assert made["values"] == read_golden(LOOP_IN_CALL)["values"]
