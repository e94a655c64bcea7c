"""libtpu's notes on generated code → the scoped memory of kernels and fusions."""

from __future__ import annotations

import pytest

from hlomem import load
from hlomem.base.source import Source
from hlomem.dump.codegen import CodegenTexts
from hlomem.dump.dump import Dump
from hlomem.view.scoped import read_scoped
from tests.places import GOLDENS

LAYERS = GOLDENS / "scoped" / "layers"
LIMITED = GOLDENS / "scoped" / "layers_limit"
KERNEL = (
    '  %%k.1 = f32[8]{0} custom-call(%%x), custom_call_target="tpu_custom_call",'
    ' metadata={op_name="jit(f)/mine/pallas_call"}, backend_config={"custom_call_config":{},'
    '"scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"1024"}],'
    '"used_scoped_memory_configs":[%s]}\n'
)


def _dump(text: str, flags: str = "", target: str = "") -> Dump:
    texts = CodegenTexts(Source("x", text), flags, target)
    return Dump("x", (), (), open_codegen=lambda: texts)


def _config(space: int, size: int) -> str:
    return f'{{"memory_space":"{space}","offset":"0","size":"{size}"}}'


def test_libtpus_own_notes_are_read() -> None:
    found = read_scoped(load(LAYERS))
    assert found is not None
    assert found.limit is None
    assert found.chip == "VIPERFISH lite"
    [kernel] = [use for use in found.uses if use.kernel]
    assert (kernel.kernel, kernel.used, kernel.limit) == ("tiled_matmul", 1048576, None)
    assert {use.opcode for use in found.uses} == {"custom-call", "fusion"}


def test_the_flag_is_the_limit() -> None:
    found = read_scoped(load(LIMITED))
    assert found is not None
    assert found.limit == 64 << 20


def test_a_kernels_limit_is_its_own() -> None:
    text = KERNEL % f"{_config(1, 700)},{_config(4, 12)}"
    found = read_scoped(_dump(text))
    assert found is not None
    vmem, smem = found.uses
    assert (vmem.kernel, vmem.color, vmem.used, vmem.limit) == ("mine", 1, 700, 1024)
    assert (smem.color, smem.used, smem.limit) == (4, 12, None)


@pytest.mark.parametrize("configs", ["", _config(1, 0)])
def test_what_uses_nothing_is_no_row(configs: str) -> None:
    assert read_scoped(_dump(KERNEL % configs)) is None


def test_dumps_without_the_file_say_nothing() -> None:
    older = GOLDENS / "xla" / "libtpu-0.0.51" / "tpu-v6e" / "nested_while"
    assert read_scoped(load(older)) is None


@pytest.mark.parametrize("flags", ["xla_tpu_scoped_vmem_limit_kib: -1\n", "", "other: 5\n"])
def test_a_flag_that_is_not_set_is_no_limit(flags: str) -> None:
    found = read_scoped(_dump(KERNEL % _config(1, 7), flags))
    assert found is not None
    assert found.limit is None


def test_an_instruction_of_several_lines_is_read_whole() -> None:
    text = (KERNEL % _config(1, 7)).replace("metadata={", 'a={\n"b":"c"\n}, metadata={')
    found = read_scoped(_dump("\n" + text))
    assert found is not None
    assert found.uses[0].kernel == "mine"
