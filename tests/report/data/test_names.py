"""Names as users know them."""

from __future__ import annotations

import pytest

from hlomem.report.data.names import short_line, short_operation, short_program


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("module_0000.jit_train_step.cl_1003875606.after_optimizations", "train_step"),
        ("module_0004.jit_train_step.cpu_after_optimizations", "train_step"),
        ("a/module_0012.jit__threefry_seed.sm_9.0_gpu_after_optimizations", "_threefry_seed"),
        ("module_0001.pmap_step.after_optimizations", "step"),
        ("goldens/seeds/003.txt", "003.txt"),
        ("C:\\dumps\\mine", "mine"),
        ("", ""),
    ],
)
def test_a_dump_is_called_by_its_function(name: str, short: str) -> None:
    assert short_program(name) == short


def test_operations_and_lines_keep_what_tells_them_apart() -> None:
    assert short_operation("jit(f)/jvp(GPT)/embed.attend/dot_general") == "embed.attend/dot_general"
    assert short_operation("x") == "x"
    assert short_line("/home/user/project/mymodel/gpt.py:48") == "gpt.py:48"
