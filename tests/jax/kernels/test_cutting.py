"""Pallas calls are found wherever they are, with their blocks."""

from __future__ import annotations

from typing import Any

import pytest

from hlomem.jax.kernels.cutting import cut_kernels

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
jnp: Any = pytest.importorskip("jax.numpy")
pl: Any = pytest.importorskip("jax.experimental.pallas")
pltpu: Any = pytest.importorskip("jax.experimental.pallas.tpu")


def _double(block: int = 256, name: str = "double", **spec: Any) -> Any:
    def kernel(x: Any, out: Any) -> None:
        out[...] = x[...] * 2

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((1024, 256), jnp.float32),
        grid=(1024 // block,),
        in_specs=[pl.BlockSpec((block, 256), lambda i: (i, 0), **spec)],
        out_specs=pl.BlockSpec((block, 256), lambda i: (i, 0)),
        name=name,
    )


X = (1024, 256)


def _cut(function: Any, *shapes: Any) -> list[Any]:
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes or (X,)]
    return cut_kernels(jax.jit(function).trace(*arrays).jaxpr)


def _in_scan(x: Any) -> Any:
    return jax.lax.scan(lambda carried, _: (_double()(carried), None), x, None, length=3)[0]


def _in_branch(x: Any) -> Any:
    return jax.lax.cond(x[0, 0] > 0, _double(), lambda y: y, x)


def _in_inner_jit(x: Any) -> Any:
    return jax.jit(lambda y: _double()(y) + 1)(x)


def _in_checkpoint(x: Any) -> Any:
    return jax.checkpoint(_double())(x)


def _in_while(x: Any) -> Any:
    return jax.lax.while_loop(lambda y: y[0, 0] < 9, _double(), x)


@pytest.mark.parametrize(
    "function", [_double(), _in_scan, _in_branch, _in_inner_jit, _in_checkpoint, _in_while]
)
def test_calls_are_found_wherever_they_are(function: Any) -> None:
    [kernel] = _cut(function)
    facts = kernel.facts
    assert (facts.name, facts.grid, facts.calls) == ("double", (4,), 1)
    assert facts.bound == 4 * 256 * 256 * 4
    assert [block.copies for block in facts.blocks] == [2, 2]
    assert facts.line.rpartition(":")[0].endswith("test_cutting.py")


def test_gradients_have_the_kernels_of_their_rules() -> None:
    twice = jax.custom_vjp(_double())
    twice.defvjp(lambda x: (_double(name="forward")(x), None), lambda _, g: (_double(128)(g),))
    found = _cut(jax.grad(lambda x: twice(x).sum()))
    assert [kernel.facts.name for kernel in found] == ["forward", "double"]


def test_the_same_call_is_cut_once_and_counted() -> None:
    call = _double()
    [kernel] = _cut(lambda x: call(call(x)))
    assert kernel.facts.calls == 2


def test_a_program_without_kernels_has_none() -> None:
    assert _cut(lambda x: x + 1) == []


def test_a_block_that_stays_has_one_buffer() -> None:
    def kernel(x: Any, y: Any, out: Any, kept: Any, table: Any) -> None:
        del kept, table
        out[...] = x[...] + y[...]

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((1024, 256), jnp.float32),
        grid=(4, 1),
        in_specs=[
            pl.BlockSpec((256, 256), lambda i, j: (i, 0)),
            pl.BlockSpec((256, 256), lambda i, j: (j, 0)),
        ],
        out_specs=pl.BlockSpec((256, 256), lambda i, j: (i, j)),
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.bfloat16), pltpu.SMEM((4,), jnp.int32)],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=1 << 22),
    )
    [cut] = _cut(call, X, (256, 256))
    moving, staying, out, scratch, table = cut.facts.blocks
    assert (moving.copies, staying.copies, out.copies) == (2, 1, 2)
    assert (scratch.space, scratch.size, table.space) == ("vmem", 2048, "smem")
    assert scratch.copies == table.copies == 0
    assert cut.facts.own_limit == 1 << 22
    assert cut.facts.smem_bound == 16


def test_single_buffering_is_taken_at_its_word() -> None:
    [kernel] = _cut(_double(pipeline_mode=pl.Buffered(1)))
    assert [block.copies for block in kernel.facts.blocks] == [1, 2]
