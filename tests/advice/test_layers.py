"""Layers: how many, what they keep, what they are called."""

from __future__ import annotations

import pytest

from hlomem.advice.layers import common_function, find_layers
from hlomem.api.load import find_program, load
from hlomem.report.data.lines import Frame
from hlomem.report.data.memory import MemoryView, build_memory
from hlomem.report.data.phases import is_backward, is_forward
from tests.advice.trial_goldens import file_of


def _memory(name: str, function: str = "train_step") -> MemoryView:
    path = file_of(name, function)
    return build_memory(load(path), find_program(str(path)))


@pytest.mark.parametrize("name", ["cpu/gpt_donate", "tpu/gpt_oom", "cpu/gpt_b16"])
def test_layers_that_are_written_out_are_counted(name: str) -> None:
    layers = find_layers(_memory(name), 0)
    assert layers is not None
    assert not layers.is_loop
    names = {each.op_name or "" for each in layers.kept}
    numbers = {name.partition("block_")[2].partition("/")[0] for name in names if "block_" in name}
    assert layers.number == len(numbers)
    assert layers.function == "Block.__call__"


def test_layers_of_a_loop_are_its_iterations() -> None:
    layers = find_layers(_memory("tpu/fsdp"), 0)
    assert layers is not None
    assert (layers.is_loop, layers.number, layers.function) == (True, 8, "layer")
    assert layers.size == 8 * 8192 * 2048 * 2


def test_what_is_kept_is_made_before_the_turn_and_read_after_it() -> None:
    layers = find_layers(_memory("cpu/gpt_donate"), 0)
    assert layers is not None
    for each in layers.kept:
        assert is_forward(each.op_name)
        assert each.is_live_at(layers.turn)
        assert each.is_live_at(layers.turn + 1)


def test_a_program_that_is_not_differentiated_has_no_layers() -> None:
    assert find_layers(_memory("cpu/decode", "decode"), 0) is None


def test_what_is_recomputed_is_neither_kept_nor_of_the_forward_pass() -> None:
    operation = "jit(f)/transpose(jvp(f))/checkpoint/rematted_computation/dot_general"
    assert not is_forward(operation)
    assert is_backward(operation)


def test_the_function_of_most_bytes_is_the_layer() -> None:
    module, step = Frame("a.py", 9, "<module>"), Frame("a.py", 7, "step")
    block = Frame("m/b.py", 3, "block")
    attention = Frame("m/b.py", 1, "attention")
    stacks = [
        ((attention, block, step, module), 5),
        ((block, step, module), 4),
        ((step, module), 1),
    ]
    assert common_function(stacks) == ("block", "a.py:7")
    assert common_function([]) == ("", "")
