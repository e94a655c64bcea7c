"""Kernels compiled alone by libtpu: their numbers are libtpu's, few compiles decide a grid."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import hlomem.jax
from hlomem.base.errors import CommandError
from hlomem.jax.kernels.front import measure_factory
from hlomem.report.page.kernels_page import format_kernels

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
needs_libtpu = pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu is not installed")
needs_cuda = pytest.mark.skipif(
    find_spec("jax_cuda13_plugin") is None, reason="the CUDA plugin is not installed"
)
KERNELS = Path(__file__).parents[3] / "examples" / "kernels" / "kernels.py"
MATMUL, SOFTMAX = f"{KERNELS}:matmul", f"{KERNELS}:softmax"
TRITON = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

def make(block=256, stages=4):
    def kernel(x, y, out):
        def step(i, total):
            part = pl.ds(i * 64, 64)
            return total + jnp.dot(x[:, part], y[part, :], preferred_element_type=jnp.float32)
        zero = jnp.zeros((block, block), jnp.float32)
        out[...] = jax.lax.fori_loop(0, 16, step, zero).astype(out.dtype)
    array = jax.ShapeDtypeStruct((1024, 1024), jnp.float16)
    call = pl.pallas_call(
        kernel, out_shape=array, grid=(1024 // block, 1024 // block),
        in_specs=[pl.BlockSpec((block, 1024), lambda i, j: (i, 0)),
                  pl.BlockSpec((1024, block), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((block, block), lambda i, j: (i, j)),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=stages))
    return call, (array, array)
"""


@needs_libtpu
def test_a_function_tells_what_its_kernels_use(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    exec(compile(KERNELS.read_text(), KERNELS, "exec"), namespace)  # noqa: S102 - an example of ours
    function, arguments = namespace["matmul"]()
    report = hlomem.jax.kernel_memory(
        function, *arguments, target=["tpu-v5e:2x2", "tpu-v6e"], cache=tmp_path
    )
    first, second = report.rows
    [use] = first.kernels
    assert (use.name, use.bound, use.used) == ("matmul_kernel", 4 << 20, 4550656)
    assert sum(part.size for part in use.parts) == use.used
    assert (use.limit, second.kernels[0].limit) == (16 << 20, 32 << 20)
    assert "uses 4.34 MiB of 16.00 MiB VMEM, fits" in str(report)
    again = hlomem.jax.kernel_memory(function, *arguments, target="tpu-v5e", cache=tmp_path)
    assert (again.compiles, again.cached) == (0, 1)


@needs_libtpu
def test_a_grid_is_decided_by_few_compiles(tmp_path: Path) -> None:
    over = {"block_m": [256, 512, 1024], "block_k": [512, 1024, 4096]}
    report = measure_factory(MATMUL, targets=["tpu-v5e"], over=over, cache=tmp_path)
    assert None not in {row.fits for row in report.rows}
    assert report.compiles < len(report.rows)
    for row in report.rows:
        for use in row.kernels:
            assert use.used is None or use.used >= use.bound
    [best] = report.largest
    assert best.is_proven
    assert "<svg" in format_kernels(report)


@needs_libtpu
def test_too_large_blocks_are_shrunk_until_they_fit(tmp_path: Path) -> None:
    report = measure_factory(
        SOFTMAX, targets=["tpu-v5e"], settings={"block": 512}, is_shrink=True, cache=tmp_path
    )
    assert report.asked == {"block": 512}
    assert report.largest[0].settings == {"block": 256}
    assert "change block from 512 to 256" in str(report)


@needs_libtpu
def test_what_cannot_be_measured_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="calls no Pallas kernel"):
        hlomem.jax.kernel_memory(lambda x: x + 1, 1.0, target="tpu-v5e", cache=tmp_path)
    with pytest.raises(CommandError, match="not for cpu"):
        measure_factory(MATMUL, targets=["cpu"])
    with pytest.raises(CommandError, match="given twice"):
        measure_factory(MATMUL, targets=["tpu-v5e"], over={"a": [1]}, settings={"a": 1})
    over = {"block": [256, 300]}
    report = measure_factory(SOFTMAX, targets=["tpu-v5e"], over=over, cache=tmp_path)
    good, _ = report.rows
    assert good.fits


@needs_cuda
def test_shared_memory_of_a_triton_kernel_is_xlas_number(tmp_path: Path) -> None:
    file = tmp_path / "triton_kernel.py"
    file.write_text(TRITON)
    over = {"stages": [1, 2, 4]}
    report = measure_factory(
        f"{file}:make", targets=["cuda-h100"], over=over, is_exact=True, cache=tmp_path / "cache"
    )
    assert [row.fits for row in report.rows] == [True, True, False]
    assert [row.kernels[0].used for row in report.rows] == [65536, 131072, 262144]
    assert report.rows[0].kernels[0].limit == 232448
