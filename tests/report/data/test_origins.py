"""Who speaks for a value: not the loop, but what computes it."""

from __future__ import annotations

import hlomem
from tests.places import GOLDENS
from tests.trials import trial

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


def test_what_was_fused_tells_the_line_of_a_fusion_that_names_none() -> None:
    told = {b.told_by for b in trial("cpu/gpt_bf16").buffers if b.source and b.told_by}
    assert "what it fuses" in told


def test_an_argument_that_is_fetched_has_the_line_of_its_reader() -> None:
    memory = trial("tpu/gpt")
    fetched = [
        b
        for b in memory.buffers
        if b.color == 1 and b.opcode == "copy-start" and (b.op_name or "").startswith("params[")
    ]
    assert fetched
    assert all(b.source and (b.told_by or "").startswith("its reader ") for b in fetched)


def test_a_compressed_value_has_the_line_of_its_source() -> None:
    memory = trial("tpu/concat_oom", "attend")
    compressed = [b for b in memory.buffers if b.name.endswith("remat_compressed")]
    assert compressed
    assert all(
        (b.source or "").endswith(("concat.py:11", "concat.py:12", "concat.py:17"))
        for b in compressed
    )
    assert {(b.told_by or "").split()[1] for b in compressed} == {"source"}


def test_an_argument_has_no_line_and_whoever_tells_its_own_is_not_named() -> None:
    memory = trial("tpu/gpt")
    arguments = [b for b in memory.buffers if b.opcode == "parameter" and b.parameter]
    assert {(b.source, b.told_by) for b in arguments} == {(None, None)}
    assert any(b.source and b.told_by is None for b in memory.buffers)
