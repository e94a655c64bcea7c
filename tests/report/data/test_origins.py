"""Who speaks for a value: not the loop, but what computes it."""

from __future__ import annotations

import hlomem
from tests.places import GOLDENS

XLA_GOLDENS = GOLDENS / "xla"
STACK = XLA_GOLDENS / "jaxlib-0.12.0.1" / "cpu" / "dus_loop"


def test_a_stack_comes_from_what_is_written_into_it() -> None:
    memory = hlomem.explain(STACK)
    stacked = memory["arg_tuple.6{1}"].buffer
    assert stacked.op_name == "jit(dus_loop)/while/body/eval_jaxpr/dot_general"
    update = memory["select_dynamic-update-slice_fusion"].buffer
    assert update.op_name == stacked.op_name


def test_what_a_loop_hands_on_comes_from_what_computes_it() -> None:
    memory = hlomem.explain(STACK)
    assert memory["arg_tuple.6{0}"].buffer.op_name == memory["wrapped_add"].buffer.op_name


def test_a_copy_without_a_name_is_told_by_what_it_copies() -> None:
    memory = hlomem.explain(STACK)
    assert memory["copy.11"].buffer.op_name == "x"
