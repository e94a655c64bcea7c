"""Kernels that need more than they may use; the messages are libtpu's and XLA's own."""

from __future__ import annotations

import pytest

from hlomem.api.oom import describe_kernel_failure
from hlomem.kernels.blocks import Block, KernelFacts
from hlomem.report.oom.explanation import Oom, build_oom
from hlomem.report.oom.kernel import KernelFailure
from hlomem.report.oom.log import read_oom
from tests.places import GOLDENS

MEBIBYTE = 1 << 20


def _oom(text: str) -> tuple[Oom, KernelFailure]:
    oom = build_oom(read_oom(text))
    assert oom is not None
    assert oom.kernel is not None
    return oom, oom.kernel


def _golden(name: str) -> tuple[Oom, KernelFailure]:
    return _oom((GOLDENS / "oom" / "libtpu-0.0.51" / f"{name}.txt").read_text())


def test_a_stack_that_is_too_large_names_its_kernel_and_both_limits_to_raise() -> None:
    oom, kernel = _golden("kernel_spills")
    assert (kernel.name, kernel.is_kernel) == ("tpu_custom_call.1", True)
    assert kernel.op_name == "jit(wrapped)/pallas_call"
    assert kernel.needed == pytest.approx(19.80 * MEBIBYTE, rel=0.001)
    assert kernel.limit == 16 * MEBIBYTE
    assert kernel.is_least
    assert not kernel.is_whole_memory
    shrink, own, flag = oom.steps
    assert "--shrink" in shrink.command
    assert own.command.endswith("vmem_limit_bytes=20971520)")
    assert "4.00 MiB less of VMEM" in own.text
    assert "xla_tpu_scoped_vmem_limit_kib=20480" in flag.command


def test_allocations_are_told_by_part() -> None:
    oom, kernel = _golden("kernel_parts")
    assert [part.kind for part in kernel.parts] == ["block in", "block out", "spills"]
    assert kernel.parts[0].words == "input 0, f32[128,4096] of f32[8192,4096], 2 buffers"
    assert sum(part.size for part in kernel.parts) == pytest.approx(kernel.needed, rel=0.01)
    assert kernel.is_whole_memory
    assert not kernel.is_least
    assert any("spill slots" in finding for finding in oom.findings)
    assert [step.text.partition(";")[0] for step in oom.steps] == ["make input 0 smaller first"]


def test_a_table_in_smem_is_told_as_one() -> None:
    oom, kernel = _golden("kernel_table")
    assert (kernel.space, kernel.name, kernel.is_kernel) == ("smem", "run.1", True)
    assert (kernel.needed, kernel.limit) == (4 * MEBIBYTE, MEBIBYTE)
    [step] = oom.steps
    assert "prefetched operand 0 is a table in SMEM" in step.text


def test_an_operation_of_xlas_own_has_no_blocks_to_change() -> None:
    text = (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem while allocating on stack for"
        " %reduce-window.2 = f32[1,163840]{1,0:T(1,128)} reduce-window(%a, %b), window={},"
        ' metadata={op_name="jit(f)/cumsum"}. Scoped allocation with size 29.96M and limit 16.00M'
        " exceeded scoped vmem limit by 13.96M."
    )
    oom, kernel = _oom(text)
    assert (kernel.name, kernel.opcode, kernel.is_kernel) == (
        "reduce-window.2",
        "reduce-window",
        False,
    )
    assert any("an operation of XLA's own" in finding for finding in oom.findings)
    [flag] = oom.steps
    assert "xla_tpu_scoped_vmem_limit_kib=30720" in flag.command


def test_shared_memory_of_a_gpu_has_exact_numbers() -> None:
    oom, kernel = _oom(
        "RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 262144,"
        " available: 232448, context: []"
    )
    assert (kernel.space, kernel.needed, kernel.limit) == ("shared memory", 262144, 232448)
    assert oom.missing == 262144 - 232448
    assert "num_stages" in oom.steps[0].text


def test_the_note_tells_the_blocks_of_a_kernel_that_is_known() -> None:
    oom, _ = _golden("kernel_spills")
    block = Block(role="in", name="args[0]", dtype="float32", bits=32, shape=(256, 4096), copies=2)
    facts = KernelFacts(name="soften", line="model.py:7", grid=(32,), blocks=(block,))
    note = describe_kernel_failure(oom, [facts]).splitlines()
    assert note[0].startswith("hlomem: kernel tpu_custom_call.1")
    assert note[1] == (
        "  soften at model.py:7: 8.00 MiB or more with its operands in HBM, of which"
    )
    assert note[3] == "    8.00 MiB  args[0] float32[256,4096] in 2 buffers"
    other = KernelFacts(name="other", line="", grid=(), blocks=())
    assert "soften" not in describe_kernel_failure(oom, [facts, other])
