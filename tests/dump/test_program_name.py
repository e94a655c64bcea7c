"""Programs are called as their authors called them."""

from __future__ import annotations

import pytest

from hlomem.dump.file_names import program_name


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("module_0000.jit_train_step.cl_1003875606.after_optimizations", "train_step"),
        ("dump/module_0012.jit__threefry_seed.cpu_after_optimizations", "_threefry_seed"),
        ("module_0001.jit_f.sm_9.0_gpu_after_optimizations-buffer-assignment.txt", "f"),
        ("module_0001.pmap_step.cpu_after_optimizations-live-range.txt.gz", "step"),
        ("module_0003.SyncTensorsGraph.42.cl_1.after_optimizations", "SyncTensorsGraph.42"),
        ("module_0003.jit_f.cpu_after_optimizations_before_buffer_assignment.txt", "f"),
    ],
)
def test_the_name_stands_between_number_and_stage(name: str, program: str) -> None:
    assert program_name(name) == program


@pytest.mark.parametrize("name", ["", "train_step", "seeds/003_e0d5.txt", "module_1.jit_f", "-"])
def test_other_names_stay_as_they_are(name: str) -> None:
    assert program_name(name) == name
