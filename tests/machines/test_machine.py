"""Sizes on each machine; every expected number stands in a dump of XLA beside such a shape."""

from __future__ import annotations

import pytest

from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.machines.machine import Mark, xla_space_name
from hlomem.machines.registry import MACHINES

ONE_TUPLE = "(f32[3]{0})"
# What a tuple holds does not matter to its table, only how many.
NINE_TUPLE = "(" + ", ".join(["f32[]"] * 9) + ")"
SIZES = [
    # CPU: jaxlib 0.12.0.1; the dynamic array is the result of set-dimension-size.
    ("cpu", "f32[<=8,3]{1,0}", 104),
    ("cpu", "s4[9]{0:E(4)}", 5),
    ("cpu", "token[]", 0),
    ("cpu", "()", 0),
    ("cpu", ONE_TUPLE, 8),
    ("cpu", "((f32[3]{0}, s32[]), token[])", 16),
    # GPU: jaxlib 0.11.2 on an H200.
    ("gpu", NINE_TUPLE, 72),
    # TPU, libtpu 0.0.2 to 0.0.51.
    ("tpu-v5e", "f32[4,1,5120]{2,1,0:T(1,128)S(1)}", 81920),
    ("tpu-v4", "bf16[6,256,1024]{2,1,0:T(8,128)(2,1)}", 3145728),
    ("tpu-v5e", "s4[256,512]{1,0:T(64,128)(8,1)E(4)}", 65536),
    ("tpu-v5p", "bf16[]{:T(256)}", 512),
    ("tpu-v6e", "pred[]{:T(512)S(6)}", 512),
    ("tpu-v5e", "u32[]{:S(2)}", 4),
    ("tpu-v5e", "u32[]{:T(128)S(2)}", 4),
    ("tpu-tpu7x", "s32[15]{0:S(10)}", 60),
    ("tpu-tpu7x", "s32[12]{0:S(8)}", 48),
    ("tpu-v4", "bf16[]", 2048),
    ("tpu-tpu7x", "pred[]{:S(6)}", 1024),
    ("tpu-v5e", "f32[]", 4096),
    ("tpu-v5e", "s32[2]{0:S(4)}", 4096),
    ("tpu-v5e", "f32[0,128]{1,0}", 0),
    ("tpu-v5e", "()", 0),
    ("tpu-v4", ONE_TUPLE, 512),
    ("tpu-v5p", ONE_TUPLE, 32),
    ("tpu-v5p", NINE_TUPLE, 64),
]


@pytest.mark.parametrize(("backend", "shape", "size"), SIZES)
def test_size_is_the_one_in_the_dump(backend: str, shape: str, size: int) -> None:
    assert MACHINES[backend].size_of(parse_shape_text(shape)) == size


@pytest.mark.parametrize(
    ("backend", "elements", "size"),
    [
        # gemma3_1b, lm24_unrolled_remat, resnet50; nested_while, many_outputs; embed_scatter_add,
        # decode_scan: the tables of libtpu 0.0.51 that tell four bytes from eight.
        ("tpu-v5e", 79, 512),
        ("tpu-v5e", 145, 1024),
        ("tpu-v5e", 321, 1536),
        ("tpu-v6e", 8, 32),
        ("tpu-v6e", 20, 96),
        ("tpu-tpu7x", 13, 64),
        ("tpu-tpu7x", 16, 64),
    ],
)
def test_tuple_tables_on_tpu_hold_pointers_of_four_bytes(
    backend: str, elements: int, size: int
) -> None:
    text = "(" + ", ".join(["s32[]"] * elements) + ")"
    assert MACHINES[backend].size_of(parse_shape_text(text)) == size


def test_tiles_weigh_nothing_where_the_machine_does_not_pad() -> None:
    shape = parse_shape_text("f32[3,5]{1,0:T(8,128)}")
    assert MACHINES["cpu"].size_of(shape) == 60
    assert MACHINES["tpu-v5e"].size_of(shape) == 4096


def test_alignment_is_by_color() -> None:
    assert MACHINES["gpu"].alignment(0) == 256
    assert MACHINES["tpu-v5e"].alignment(0) == 16384
    assert MACHINES["tpu-v5e"].alignment(1) == MACHINES["tpu-v4"].alignment(3) == 4096
    assert MACHINES["tpu-v5e"].alignment(2) == 4
    assert MACHINES["tpu-v5e"].alignment(8) is None


def test_a_machine_is_called_by_its_platform_and_its_chip() -> None:
    assert MACHINES["tpu-v5e"].name == "tpu-v5e"
    assert (MACHINES["gpu"].name, MACHINES["gpu"].chip_name) == ("gpu", "")
    assert (MACHINES["gpu-a100-80"].platform, MACHINES["gpu-a100-80"].chip_name) == (
        "gpu",
        "a100-80",
    )


def test_only_a_capacity_that_the_runtime_gives_counts_in_a_plan() -> None:
    assert MACHINES["tpu-v5e"].capacity == 63 * 2**28
    assert MACHINES["gpu-h200"].capacity is None
    assert MACHINES["cpu"].capacity is None


@pytest.mark.parametrize("color", range(14))
def test_the_name_of_a_memory_space_finds_it(color: int) -> None:
    for machine in MACHINES.values():
        assert machine.find_color(machine.space_name(color)) == color
        assert machine.find_color(str(color)) == color


@pytest.mark.parametrize("name", ["tpu-v5e", "gpu"])
def test_words_of_users_win_over_those_of_xla(name: str) -> None:
    machine = MACHINES[name]
    assert machine.find_color("host") == 5  # XLA calls that cmem, and 4 the host
    assert machine.find_color("hbm") == 0  # XLA calls 3 so
    assert machine.find_color("default") == 0
    assert machine.find_color("color_6") == 6
    assert machine.find_color("elsewhere") is None
    assert machine.find_color("9" * 30) is None


def test_colors_are_called_as_xla_prints_them_in_its_report() -> None:
    names = [xla_space_name(color) for color in range(8)]
    assert names == ["default", "vmem", "smem", "hbm", "host", "cmem", "color_6", "color_7"]


def test_a_mark_is_what_its_pattern_says_and_not_a_name_like_it() -> None:
    mark = Mark("__cublas$", "it calls cuBLAS", pattern=r'custom_call_target="__cublas\$')
    assert mark.is_in('custom-call(%a), custom_call_target="__cublas$gemm"')
    assert not mark.is_in('metadata={op_name="__cublas$gemm"}')
    assert not mark.is_in("")
