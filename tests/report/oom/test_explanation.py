"""What is concluded from out-of-memory messages."""

from __future__ import annotations

import pytest
from msgspec import structs

from hlomem.machines.registry import platform_machine
from hlomem.report.data import roles
from hlomem.report.oom.explanation import Oom, build_oom, role_of
from hlomem.report.oom.log import Failure, NamedBuffer, OomLog, read_oom
from hlomem.report.screens.oom_text import draw_oom
from hlomem.report.screens.text import plain
from tests.conftest import GOLDENS
from tests.report.oom.test_log import MESSAGES


def _explain(name: str) -> Oom:
    oom = build_oom(read_oom((GOLDENS / "oom" / f"{name}.txt").read_text()))
    assert oom is not None
    return oom


def test_roles_add_up_to_what_is_named() -> None:
    for path in MESSAGES:
        oom = build_oom(read_oom(path.read_text()))
        assert oom is not None
        assert sum(part.size for part in oom.roles) == oom.named
        assert sum(group.size for group in oom.groups) == oom.named


def test_padding_is_named_with_the_dimension_that_grows() -> None:
    oom = _explain("libtpu-0.0.2/padded_convolution")
    assert oom.roles[0].name == roles.PADDING
    assert "padding takes 15.00 GiB of 16.00 GiB; without it the program would fit" in oom.findings
    assert any("dimension 2 from 8 to 128" in finding for finding in oom.findings)


def test_equal_buffers_are_one_group_with_their_line() -> None:
    oom = _explain("libtpu-0.0.24/temporaries")
    first = oom.groups[0]
    assert (first.count, first.size) == (4, 16 * 2**30)
    assert first.source is not None
    assert first.source.startswith("tools/record_oom.py:")
    assert any(group.role == roles.COPIES for group in oom.groups)


def test_arguments_that_do_not_fit_are_said() -> None:
    assert "arguments alone take 18.00 GiB, 114.3% of the memory" in (
        _explain("libtpu-0.0.24/arguments").findings
    )


def test_fragmentation_is_told_from_plain_lack() -> None:
    fragmented = _explain("jaxlib-0.11.2-h200/fragmented")
    assert any(each.startswith("fragmented: 59.85 GiB were free") for each in fragmented.findings)
    assert "cuda_async" in fragmented.steps[0].command
    full = _explain("jaxlib-0.11.2-h200/many_arrays")
    assert not any("fragmented" in each for each in full.findings)
    assert "MEM_FRACTION" in full.steps[0].command


FRAGMENTED = """RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 46.62G of 15.48G hbm. Exceeded hbm capacity by 31.14G.

Total hbm usage >= 47.14G:
    reserved        530.00M
    program          46.62G
    arguments            0B

Program hbm requirement 46.62G:
    global           20.00M
    HLO temp         46.60G (100.0% utilization: Unpadded (37.34G) Padded (37.34G), 19.9% fragmentation (9.26G))
"""  # noqa: E501


def test_fragmentation_is_not_padding() -> None:
    oom = build_oom(read_oom(FRAGMENTED))
    assert oom is not None
    assert not any("padding" in finding for finding in oom.findings)
    assert "9.26 GiB (19.9%) are holes between temporaries (fragmentation)" in oom.findings


def test_no_share_of_the_device_helps_what_is_larger_than_it() -> None:
    oom = _explain("jaxlib-0.11.2-h200/one_large")
    assert not any("MEM_FRACTION" in step.command for step in oom.steps)


def test_a_kernel_gets_no_advice_to_dump() -> None:
    oom = _explain("libtpu-0.0.24/kernel_blocks")
    assert any("jit(wrapped)/pallas_call" in finding for finding in oom.findings)
    commands = [step.command for step in oom.steps]
    assert not any("xla_dump_to" in command for command in commands)
    assert any("--xla_tpu_scoped_vmem_limit_kib=32768" in command for command in commands)


def test_a_program_that_is_named_is_named_in_the_next_steps() -> None:
    commands = [step.command for step in _explain("jaxlib-0.11.2-h200/gradients").steps]
    assert 'XLA_FLAGS="--xla_dump_to=xla_dump --xla_dump_hlo_as_text" python …' in commands
    assert "hlomem peak xla_dump --module jit_loss" in commands


def test_rematerialization_that_saved_nothing_is_said() -> None:
    findings = _explain("jaxlib-0.11.2-h200/rematerialized").findings
    assert findings[0] == "rematerialization reached 503.0 GiB; its goal was 78.51 GiB"
    assert len(findings) == 2


def test_a_log_without_a_message_is_no_explanation() -> None:
    assert build_oom(read_oom("all went well\n")) is None


@pytest.mark.parametrize("path", MESSAGES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_screen_has_80_columns(path: object) -> None:
    oom = build_oom(read_oom(path.read_text()))  # type: ignore[attr-defined]
    assert oom is not None
    lines = ["".join(text for text, _ in line) for line in draw_oom(oom, 80)]
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 50


GPU_TEXT = """RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12884901888 bytes.
BufferAssignment stats:
             parameter allocation:    1.00GiB
     preallocated temp allocation:   11.70GiB
  preallocated temp fragmentation:    1.17GiB (10.00%)
                 total allocation:   12.70GiB
              total fragmentation:    1.17GiB (9.21%)
Peak buffers:
\tBuffer 1:
\t\tSize: 4.00GiB
\t\tOperator: op_name="jit(step)/jit(main)/dot_general[dimension_numbers=(((1,), (0,)), ((), ())) \
precision=None preferred_element_type=float32]" source_file="/home/user/model.py" source_line=123
\t\tXLA Label: custom-call
\t\tShape: f32[32768,32768]
\t\t==========================
"""


def test_the_line_is_whole_and_the_operation_without_its_parameters() -> None:
    oom = build_oom(read_oom(GPU_TEXT))
    assert oom is not None
    assert oom.groups[0].op_name == "jit(step)/jit(main)/dot_general"
    screen = "".join(piece + "\n" for line in draw_oom(oom, 80) for piece, _ in line)
    assert "/home/user/model.py:123  jit(step)/jit(main)/dot_general" in screen
    assert "1.17 GiB (9.2%) are holes between temporaries (fragmentation)" in oom.findings


def _concluded(failure: Failure, *buffers: NamedBuffer) -> Oom:
    oom = build_oom(OomLog(name="log", failures=(failure,), buffers=buffers))
    assert oom is not None
    return oom


def test_a_message_without_a_number_is_said_to_have_none() -> None:
    oom = _concluded(Failure(platform="tpu", moment="run", space="hbm", line=1))
    assert oom.missing is None
    assert "the message does not say how much of hbm" in plain(draw_oom(oom, 80))


def test_a_buffer_that_alone_does_not_fit_is_named_with_what_padding_adds() -> None:
    failure = Failure(
        platform="tpu", moment="compile", space="hbm", needed=1 << 34, line=1,
        shape="f32[1024,8]{1,0:T(8,128)}", subject="convolution.3",
    )  # fmt: skip
    findings = _concluded(failure).findings
    assert any("does not fit: f32[1024,8]" in finding for finding in findings)
    assert "padding makes it larger: dimension 1 from 8 to 128" in findings
    unread = structs.replace(failure, shape="f99[8]")
    assert not any("padding" in finding for finding in _concluded(unread).findings)


def test_a_buffer_that_takes_most_of_the_memory_is_asked_about() -> None:
    failure = Failure(
        platform="tpu", moment="compile", space="hbm", needed=20 << 30, available=16 << 30, line=1
    )
    large = NamedBuffer(size=15 << 30, shape="f32[4096,983040]", kind="parameter")
    oom = _concluded(failure, large)
    assert any("takes 93.8% of the memory: f32[4096,983040]" in line for line in oom.findings)
    assert oom.groups[0].role == role_of(large)


def test_a_kernel_whose_message_has_no_number_gets_no_flag() -> None:
    oom = _concluded(Failure(platform="tpu", moment="compile", space="vmem", line=1))
    assert [step.command[:13] for step in oom.steps] == ["hlomem kernel"]


def test_a_platform_with_a_report_of_allocations_is_asked_for_it() -> None:
    for platform in ("cpu", "gpu", "tpu"):
        oom = _concluded(Failure(platform=platform, moment="run", needed=1 << 30, line=1))
        machine = platform_machine(platform)
        assert machine is not None
        commands = [step.command for step in oom.steps if "report of all" in step.text]
        flag = machine.allocations_flag
        assert commands == ([f"{flag} python …"] if flag else [])
