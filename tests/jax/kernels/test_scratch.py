"""Scratch that libtpu may drop is in no lower bound."""

from __future__ import annotations

from typing import Any

import pytest

from hlomem.jax.kernels.cutting import cut_kernels

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
jnp: Any = pytest.importorskip("jax.numpy")
pl: Any = pytest.importorskip("jax.experimental.pallas")
pltpu: Any = pytest.importorskip("jax.experimental.pallas.tpu")


def _forwarded(x: Any, out: Any, kept: Any) -> None:
    kept[...] = x[...] * 2
    out[...] = kept[...] + 1


def _never_read(x: Any, out: Any, kept: Any) -> None:
    def begin() -> None:
        kept[...] = jnp.zeros_like(kept)

    pl.when(pl.program_id(0) == 0)(begin)

    out[...] = x[...]


def _written_in_a_loop(x: Any, out: Any, kept: Any) -> None:
    def step(i: Any, _: Any) -> Any:
        kept[pl.ds(i * 8, 8), :] = x[pl.ds(i * 8, 8), :]
        return 0

    jax.lax.fori_loop(0, 16, step, 0)
    out[...] = kept[...]


def _summed(x: Any, out: Any, kept: Any) -> None:
    def begin() -> None:
        kept[...] = jnp.zeros_like(kept)

    pl.when(pl.program_id(0) == 0)(begin)

    kept[...] += x[...]
    out[...] = kept[...]


def _read_in_a_branch(x: Any, out: Any, kept: Any) -> None:
    def begin() -> None:
        out[...] = kept[...]

    pl.when(pl.program_id(0) > 0)(begin)

    kept[...] = x[...]


@pytest.mark.parametrize(
    ("kernel", "steps", "copies"),
    [
        (_forwarded, 8, 0),
        (_never_read, 8, 0),
        (_written_in_a_loop, 8, 0),
        (_summed, 8, 1),
        (_summed, 1, 0),
        (_read_in_a_branch, 8, 1),
    ],
)
def test_only_what_outlives_a_step_is_certain(kernel: Any, steps: int, copies: int) -> None:
    spec = pl.BlockSpec((128, 256), lambda i: (i, 0))
    array = jax.ShapeDtypeStruct((128 * steps, 256), jnp.float32)
    call = pl.pallas_call(
        kernel,
        out_shape=array,
        grid=(steps,),
        in_specs=[spec],
        out_specs=spec,
        scratch_shapes=[pltpu.VMEM((128, 256), jnp.float32)],
    )
    [cut] = cut_kernels(jax.jit(call).trace(array).jaxpr)
    assert cut.facts.blocks[-1].copies == copies
