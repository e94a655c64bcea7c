"""Blocks in whole tiles; the expected bytes are those of libtpu 0.0.51's windows on a v5e."""

from __future__ import annotations

import pytest

from hlomem.kernels.blocks import Block, KernelFacts, is_within, padded_bytes, parts_of


@pytest.mark.parametrize(
    ("shape", "bits", "size"),
    [
        ((256, 256), 32, 262144),
        ((256, 256), 16, 131072),
        ((256, 256), 8, 65536),
        ((1, 8192), 32, 32768),
        ((1, 8192), 16, 32768),
        ((1, 8192), 8, 32768),
        ((3, 8192), 32, 131072),
        ((5, 8192), 16, 131072),
        ((12, 8192), 32, 524288),
        ((12, 8192), 16, 262144),
        ((9, 8192), 8, 131072),
        ((3, 8192), 16, 65536),
        ((20, 8192), 8, 196608),
        ((64, 8, 128), 32, 262144),
        ((64, 3, 128), 16, 65536),
        ((64, 1, 128), 32, 32768),
        ((8, 32, 1, 128), 16, 131072),
        ((30000,), 32, 120320),
    ],
)
def test_blocks_fill_tiles_as_libtpus_do(shape: tuple[int, ...], bits: int, size: int) -> None:
    assert padded_bytes(shape, bits) == size


def _block(role: str, rows: int, copies: int = 1, space: str = "vmem") -> Block:
    return Block(
        role=role,  # type: ignore[arg-type]
        name=role,
        dtype="float32",
        bits=32,
        shape=(rows, 128),
        copies=copies,
        space=space,
    )


def _kernel(rows: int) -> KernelFacts:
    blocks = (
        _block("in", rows, 2),
        _block("in", rows, 1, "smem"),
        _block("out", rows, 2),
        _block("scratch", rows),
    )
    return KernelFacts(name="k", line="", grid=(4,), blocks=blocks)


def test_parts_add_up_to_what_is_used_or_to_the_bound() -> None:
    kernel = _kernel(64)
    assert sum(part.size for part in parts_of(kernel, None)) == kernel.bound == 5 * 64 * 512
    assert sum(part.size for part in parts_of(kernel, 300_000)) == 300_000
    assert [part.name for part in parts_of(kernel, 300_000)][-1] == "inner values and spills"


def test_smem_counts_by_itself() -> None:
    assert _kernel(64).smem_bound == 64 * 512


def test_blocks_are_compared_one_by_one() -> None:
    assert is_within([_kernel(32)], [_kernel(64)])
    assert is_within([_kernel(64)], [_kernel(64)])
    assert not is_within([_kernel(64)], [_kernel(32)])
    assert not is_within([], [])
