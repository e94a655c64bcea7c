"""Every form of XLA's out-of-memory messages is read for what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.base.sizes import parse_printed_size
from hlomem.report.oom.log import Failure, read_oom
from tests.conftest import GOLDENS

MESSAGES = sorted((GOLDENS / "oom").rglob("*.txt"))
GIB = 2**30

NEEDED = {
    "jaxlib-0.11.2-h200/fragmented": (32 * GIB, None),
    "jaxlib-0.11.2-h200/gradients": (100 * GIB, None),
    "jaxlib-0.11.2-h200/many_arrays": (4 * GIB, None),
    "jaxlib-0.11.2-h200/one_large": (200 * GIB, None),
    "jaxlib-0.11.2-h200/platform_allocator": (4 * GIB, None),
    "jaxlib-0.11.2-h200/run_array": (4 * GIB, None),
    "jaxlib-0.11.2-h200/run_frag": (round(64.02 * GIB), None),
    "jaxlib-0.11.2-h200/run_live": (round(30.19 * GIB), None),
    "jaxlib-0.11.2-h200/run_program": (round(251.46 * GIB), None),
    "jaxlib-0.11.2-h200/rematerialized": (540125692412, 84298380107),
    "jaxlib-0.12.0.1-cpu/one_large": (35184372088832, None),
    "libtpu-0.0.2/arguments": (18 * GIB, 15.75 * GIB),
    "libtpu-0.0.2/kernel_whole": (2**28, 2**27),
    "libtpu-0.0.2/padded_convolution": (16 * GIB, 15.75 * GIB),
    "libtpu-0.0.2/temporaries": (16 * GIB, 15.75 * GIB),
    "libtpu-0.0.24/arguments": (18 * GIB, 15.75 * GIB),
    "libtpu-0.0.24/kernel_blocks": (2**25, 2**24),
    "libtpu-0.0.24/kernel_whole": (2**28, 2**27),
    "libtpu-0.0.24/one_allocation": (24 * GIB, 16 * GIB),
    "libtpu-0.0.24/padded_convolution": (16 * GIB, 15.75 * GIB),
    "libtpu-0.0.24/padded_sort": (round(28.12 * GIB), 15.75 * GIB),
    "libtpu-0.0.24/temporaries": (24 * GIB, 15.75 * GIB),
    "libtpu-0.0.51/arguments": (18 * GIB, 15.75 * GIB),
    "libtpu-0.0.51/kernel_blocks": (2**26, 2**24),
    "libtpu-0.0.51/kernel_parts": (round(9.80 * 2**20), 2**23),
    "libtpu-0.0.51/kernel_spills": (round(19.80 * 2**20), 2**24),
    "libtpu-0.0.51/kernel_table": (2**22, 2**20),
    "libtpu-0.0.51/kernel_whole": (2**28, 2**27),
    "libtpu-0.0.51/one_allocation": (round(42.75 * GIB), 15.75 * GIB),
    "libtpu-0.0.51/padded_convolution": (52 * GIB, 15.75 * GIB),
    "libtpu-0.0.51/padded_sort": (round(31.93 * GIB), 15.75 * GIB),
    "libtpu-0.0.51/temporaries": (round(28.06 * GIB), 15.75 * GIB),
}
"""What each message says was needed and available, read by eye."""


def _last(text: str) -> Failure:
    return read_oom(text).failures[-1]


@pytest.mark.parametrize("path", MESSAGES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_recorded_message_says_how_much(path: Path) -> None:
    failure = _last(path.read_text())
    assert (failure.needed, failure.available) == NEEDED[f"{path.parent.name}/{path.stem}"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512B", 512),
        ("15.5K", 15872),
        ("258.00M", 258 * 2**20),
        ("1.50G", 3 * 2**29),
        ("6.00MiB", 6 * 2**20),
        ("4.00 GiB", 4 * GIB),
        ("540125692412 bytes", 540125692412),
        ("67108864B", 2**26),
        ("36", 36),
    ],
)
def test_sizes_are_read_in_every_spelling(text: str, size: int) -> None:
    assert parse_printed_size(text) == size


def test_breakdown_of_a_tpu_names_its_parts_and_padding() -> None:
    log = read_oom((GOLDENS / "oom/libtpu-0.0.24/padded_sort.txt").read_text())
    whole, program = log.breakdowns
    assert [part.name for part in whole.parts] == ["reserved", "program", "arguments"]
    assert whole.total == parse_printed_size("28.37G")
    [temporaries] = program.parts
    assert temporaries.unpadded == parse_printed_size("22.36G")
    assert len(log.buffers) == 19
    assert log.buffers[0].shape == "f32[15000,513,130]{1,2,0:T(8,128)}"
    assert log.buffers[0].unpadded == parse_printed_size("3.73G")


def test_a_part_of_unknown_size_does_not_end_the_list() -> None:
    log = read_oom((GOLDENS / "oom/libtpu-0.0.2/arguments.txt").read_text())
    assert [part.name for part in log.breakdowns[0].parts] == ["reserved", "arguments"]


def test_state_of_the_allocator_and_who_holds_its_memory() -> None:
    pool = read_oom((GOLDENS / "oom/jaxlib-0.11.2-h200/fragmented.txt").read_text()).pool
    assert pool is not None
    assert (pool.in_use, pool.largest_free) == (45 * GIB, parse_printed_size("14.85GiB"))
    assert [(h.name, h.count) for h in pool.holders] == [
        ("jit_broadcast_in_dim", 90),
        ("jit_convert_element_type", 1),
    ]


# Forms that no XLA at hand prints, after public reports.

_OLD_GPU = """
XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8388608 bytes.
BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:    2.00MiB
              constant allocation:         0B
        maybe_live_out allocation:    8.00MiB
     preallocated temp allocation:         0B
                 total allocation:   10.00MiB
              total fragmentation:         0B (0.00%)
Peak buffers:
\tBuffer 1:
\t\tSize: 8.00MiB
\t\tOperator: op_name="jit(f)/jit(main)/concatenate[dimension=0]" source_file="a.py"
\t\tXLA Label: concatenate
\t\tShape: f32[2048,1024]
\t\t==========================

\tBuffer 2:
\t\tSize: 2.00MiB
\t\tEntry Parameter Subshape: f32[512,1024]
\t\t==========================

"""


def test_peak_buffers_of_older_gpus() -> None:
    log = read_oom(_OLD_GPU)
    assert log.failures[0].needed == 2**23
    [stats] = log.breakdowns
    assert stats.total == 10 * 2**20
    assert sum(part.size for part in stats.parts) == stats.total
    assert [(b.size, b.shape, b.kind) for b in log.buffers] == [
        (2**23, "f32[2048,1024]", None),
        (2**21, "f32[512,1024]", "parameter"),
    ]


def test_prefixes_of_log_writers_are_no_part_of_a_message() -> None:
    for prefix in (
        "2021-05-04 09:05:40.721128: E    1578 tensorflow/compiler/xla/xla_client/xla_util.cc:76] ",
        "W1115 11:10:33.120010    1743 something.cc:12] ",
        "17\x1b[2m\x1b[36m(Worker pid=489)\x1b[0m ",
        "(Worker pid=489, ip=10.0.0.1) ",
    ):
        text = "\n".join(prefix + line for line in _OLD_GPU.split("\n"))
        assert read_oom(text).buffers == read_oom(_OLD_GPU).buffers
        assert read_oom(text).breakdowns == read_oom(_OLD_GPU).breakdowns


_NOT_POSSIBLE = "That was not possible. There are"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            (
                f"Error allocating device buffer: Attempting to allocate 96.50M. {_NOT_POSSIBLE} "
                "60.17M free.; (0x0x0_HBM0)"
            ),
            ("tpu", "run", "hbm", "96.50M", "60.17M"),
        ),
        (
            (
                f"Attempting to reserve 3.50G at the bottom of memory. {_NOT_POSSIBLE} 1.50G free, "
                "0B reserved, and 1.50G reservable."
            ),
            ("tpu", "run", "hbm", "3.50G", "1.50G"),
        ),
        (
            (
                "TPU TensorCore Hbm usage: 30.00G, SparseCore Hbm usage 170.00G, "
                "exceeding available bytes: 95.00G"
            ),
            ("tpu", "compile", "hbm", "200.00G", "95.00G"),
        ),
        (
            "Failed to allocate request for 64.00MiB (67108864B) on device ordinal 0",
            ("gpu", "run", "", "64M", None),
        ),
        (
            (
                "W bfc_allocator.cc:479] Allocator (GPU_1_bfc) ran out of memory trying "
                "to allocate 27.50GiB (rounded to 29527900160)requested by op"
            ),
            ("gpu", "run", "GPU_1_bfc", "27.50G", None),
        ),
    ],
)
def test_older_and_rarer_messages(text: str, wanted: tuple[str | None, ...]) -> None:
    found = _last(text)
    platform, moment, space, needed, available = wanted
    assert (found.platform, found.moment, found.space) == (platform, moment, space)
    assert found.needed == parse_printed_size(needed or "")
    assert found.available == (parse_printed_size(available) if available else None)


def test_an_allocation_that_may_fail_is_no_failure() -> None:
    text = (
        "W tsl/bfc_allocator.cc:371] Allocator (GPU_0_bfc) ran out of memory trying to allocate "
        "2.00GiB with freed_by_count=0. The caller indicates that this is not a failure, but this "
        "may mean that there could be performance gains if more memory were available."
    )
    assert read_oom(text).failures == ()


def test_what_devices_repeat_is_counted() -> None:
    line = "RESOURCE_EXHAUSTED: Out of memory allocating 4096 bytes.\n"
    [failure] = read_oom("x\n" + line * 3).failures
    assert (failure.count, failure.line) == (3, 2)


def test_of_lists_of_several_devices_the_first_counts() -> None:
    assert read_oom(_OLD_GPU * 3).buffers == read_oom(_OLD_GPU).buffers


def test_a_line_without_end_takes_no_time() -> None:
    for line in ("x/y." * 200_000, " reserved" * 100_000, "Allocation (size=1" + " [" * 200_000):
        head = "Total hbm usage >= 1.00G:\n"
        assert read_oom(f"{head}{line}\n1. Size: 1B\n  Shape: {line}\n").failures == ()


@given(st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    read_oom(text)
    read_oom(_OLD_GPU.replace("8.00MiB", text))
