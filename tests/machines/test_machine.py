"""Sizes on each backend; every expected number stands in a dump of XLA beside such a shape."""

from __future__ import annotations

import pytest

from hlomem.base.errors import CommandError
from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.machines.machine import BACKENDS, CPU_ALIGNED_TO_16, find_backend

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
    assert BACKENDS[backend].size_of(parse_shape_text(shape)) == size


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
    assert BACKENDS[backend].size_of(parse_shape_text(text)) == size


def test_tiles_weigh_nothing_where_the_backend_does_not_pad() -> None:
    shape = parse_shape_text("f32[3,5]{1,0:T(8,128)}")
    assert BACKENDS["cpu"].size_of(shape) == 60
    assert BACKENDS["tpu-v5e"].size_of(shape) == 4096


def test_alignment_is_by_color() -> None:
    assert BACKENDS["gpu"].alignment(0) == 256
    assert BACKENDS["tpu-v5e"].alignment(0) == 16384
    assert BACKENDS["tpu-v5e"].alignment(1) == BACKENDS["tpu-v4"].alignment(3) == 4096
    assert BACKENDS["tpu-v5e"].alignment(2) == 4
    assert BACKENDS["tpu-v5e"].alignment(8) is None


def test_the_backend_of_a_dump_is_found_by_name_chip_and_version() -> None:
    assert find_backend("tpu", "v6e").name == "tpu-v6e"
    assert find_backend("gpu", "h200") is BACKENDS["gpu"]
    assert find_backend("cpu", jaxlib=(0, 4, 30)) is CPU_ALIGNED_TO_16
    assert find_backend("cpu", jaxlib=(0, 4, 35)) is find_backend("cpu")
    assert find_backend("cpu", jaxlib=(0, 12, 0, 1)).alignment(0) == 64


def test_an_unknown_backend_names_those_known() -> None:
    with pytest.raises(CommandError, match="unknown backend `tpu-v3`; known are cpu, gpu, tpu-v4"):
        find_backend("tpu", "v3")


@pytest.mark.parametrize("chip", ["MI300X", "gfx942"])
def test_a_gpu_of_amd_is_refused(chip: str) -> None:
    with pytest.raises(CommandError, match=f"no rules for GPU `{chip}`"):
        find_backend("gpu", chip)
