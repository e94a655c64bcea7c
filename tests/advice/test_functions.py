"""Functions that repeat: which, how often, in which loop, and what holds them all."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.advice.code import wrap_layers
from hlomem.advice.functions import find_layers, find_loops, is_checkpointed
from hlomem.api.load import find_program, load
from hlomem.api.plan import plan
from hlomem.report.data.memory import MemoryView, build_memory
from tests.advice.trial_goldens import file_of


def _memory(name: str, function: str = "train_step") -> MemoryView:
    path = file_of(name, function)
    return build_memory(load(path), find_program(str(path)))


@pytest.mark.parametrize("name", ["cpu/gpt_donate", "tpu/gpt_oom", "cpu/gpt_b16"])
def test_the_block_of_layers_that_are_written_out_is_found(name: str) -> None:
    memory = _memory(name)
    outermost = find_layers(memory)[0]
    assert [layer.short_name for layer in outermost] == ["Block"]
    [block] = outermost
    scopes = {each.op_name.partition("block_")[2].partition("/")[0] for each in memory.buffers
              if each.op_name and "block_" in each.op_name}  # fmt: skip
    assert 1 < block.calls <= len(scopes)
    assert block.is_linen
    assert not block.is_in_loop


def test_a_function_that_was_counted_once_holds_all_layers() -> None:
    memory = _memory("cpu/gpt_donate")
    [block] = find_layers(memory)[0]
    once = {f"{block.file}::{block.name}": 1}
    names = [layer.name for level in find_layers(memory, once) for layer in level]
    assert block.name not in names


def test_the_body_of_a_loop_is_a_layer_and_its_caller_is_none() -> None:
    memory = _memory("tpu/fsdp")
    [layer] = find_layers(memory)[0]
    assert (layer.short_name, layer.is_in_loop) == ("layer", True)
    [loop, *_] = find_loops(memory)
    assert (loop.length, loop.size) == (8, 8 * 8192 * 2048 * 2)
    assert loop.function != layer.name


UNROLLED = """HloModule jit_step, is_scheduled=true

FileNames
1 "/home/user/model.py"

FunctionNames
1 "step"
2 "step.<locals>.loss"
3 "layer"

FileLocations
1 {file_name_id=1 function_name_id=1 line=30 end_line=30 column=1 end_column=9}
2 {file_name_id=1 function_name_id=2 line=20 end_line=20 column=1 end_column=9}
3 {file_name_id=1 function_name_id=3 line=10 end_line=10 column=1 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=3 parent_frame_id=3}

ENTRY %main (x: f32[1024]) -> f32[1024] {
  %x = f32[1024]{0} parameter(0), metadata={op_name="x"}
  %a = f32[1024]{0} sine(%x), metadata={op_name="jit(step)/jvp()/sin" stack_frame_id=3}
  %b = f32[1024]{0} sine(%a), metadata={op_name="jit(step)/jvp()/sin" stack_frame_id=3}
  %c = f32[1024]{0} sine(%b), metadata={op_name="jit(step)/jvp()/sin" stack_frame_id=3}
  ROOT %d = f32[1024]{0} multiply(%c, %a), metadata={op_name="jit(step)/transpose(jvp())/mul"}
}
"""


def test_what_computes_all_is_no_layer_if_one_below_it_is() -> None:
    module = hlo.parse(UNROLLED)
    memory = build_memory(plan(module, backend="cpu").dump, module)
    [[layer]] = find_layers(memory)
    assert (layer.short_name, layer.calls) == ("layer", 3)


def test_a_lambda_is_named_by_its_line_and_no_code_assigns_to_it() -> None:
    module = hlo.parse(UNROLLED.replace('3 "layer"', '3 "make.<locals>.<lambda>"'))
    memory = build_memory(plan(module, backend="cpu").dump, module)
    [[layer]] = find_layers(memory)
    assert layer.short_name == "the lambda at user/model.py:10"
    assert wrap_layers([layer]) == "# jax.checkpoint(…) around the lambda at user/model.py:10"


def test_a_program_that_is_not_differentiated_has_no_layers() -> None:
    assert find_layers(_memory("cpu/decode", "decode")) == []


def test_what_is_recomputed_is_seen() -> None:
    assert is_checkpointed(_memory("cpu/gpt_remat"))
    assert not is_checkpointed(_memory("cpu/gpt_donate"))
