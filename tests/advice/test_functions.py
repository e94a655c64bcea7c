"""Functions that repeat: which, how often, in which loop, and what holds them all."""

from __future__ import annotations

import pytest

from hlomem.advice.functions import find_layers, find_loops, is_checkpointed
from hlomem.api.load import find_program, load
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


def test_a_program_that_is_not_differentiated_has_no_layers() -> None:
    assert find_layers(_memory("cpu/decode", "decode")) == []


def test_what_is_recomputed_is_seen() -> None:
    assert is_checkpointed(_memory("cpu/gpt_remat"))
    assert not is_checkpointed(_memory("cpu/gpt_donate"))
