"""Provokes out-of-memory errors, for the tests of `hlomem oom`.

    python -m tools.record_oom tpu|gpu OUT      (in an environment with jax, for tpu with libtpu)

Writes what each program prints, error and log, to OUT/PROGRAM.txt. TPU programs are compiled for a
v5e that need not be there; GPU programs need a GPU. Each runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMEOUT_SECONDS = 200
ENVIRONMENT = {
    "tpu": {
        "JAX_PLATFORMS": "cpu",
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_ID": "0",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    },
    "gpu": {"TF_CPP_MIN_LOG_LEVEL": "0"},
}


def arguments(jax: Any, array: Callable[..., Any]) -> Any:
    """Arguments that do not fit."""
    return jax.jit(lambda a, b: (a @ b).sum()), array(65536, 65536), array(65536, 8192)


def temporaries(jax: Any, array: Callable[..., Any]) -> Any:
    """Results of six layers that are all needed at the end."""
    jnp = jax.numpy

    def network(x: Any, w: Any) -> Any:
        hidden = []
        for layer in range(6):
            x = jnp.sin(x @ w + layer)
            hidden.append(x)
        return sum((jnp.cumsum(each, axis=0) @ w).sum() for each in reversed(hidden))

    return jax.jit(network), array(262144, 4096), array(4096, 4096)


def padded_convolution(jax: Any, array: Callable[..., Any]) -> Any:
    """Two channels where the chip has 128 lanes."""

    def convolve(x: Any, kernel: Any) -> Any:
        axes = ("NDHWC", "DHWIO", "NDHWC")
        result = jax.lax.conv_general_dilated(x, kernel, (1, 1, 1), "SAME", dimension_numbers=axes)
        return result.sum(), jax.numpy.cumsum(x, axis=1)

    return jax.jit(convolve), array(1, 64, 4096, 1024, 2), array(3, 3, 1, 2, 2)


def padded_sort(jax: Any, array: Callable[..., Any]) -> Any:
    """Dimensions just above the size of a tile."""
    jnp = jax.numpy

    def sort(x: Any, w: Any) -> Any:
        kept = []
        for number in range(4):
            x = jnp.sort(jnp.sin(x) + number, axis=1)
            kept.append(x)
        pairs = zip(reversed(kept), kept, strict=True)
        return sum((jnp.sort(a * w, axis=1) * b).sum() for a, b in pairs)

    return jax.jit(sort), array(15000, 513, 130), array(130)


def one_allocation(jax: Any, array: Callable[..., Any]) -> Any:
    """A scan that stacks more activations than the chip holds."""
    jnp = jax.numpy

    def loss(ws: Any, x: Any) -> Any:
        return (jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, ws)[0] ** 2).mean()

    return jax.jit(jax.grad(loss)), array(24, 4096, 4096), array(65536, 4096)


def kernel_blocks(jax: Any, array: Callable[..., Any]) -> Any:
    """A Pallas kernel with blocks larger than its scratch memory."""
    pl = import_module("jax.experimental.pallas")

    def double(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    block = pl.BlockSpec((2048, 2048), lambda i: (i, 0))
    call = pl.pallas_call(
        double, out_shape=array(8192, 2048), grid=(4,), in_specs=[block], out_specs=block
    )
    return jax.jit(call), array(8192, 2048)


def kernel_whole(jax: Any, array: Callable[..., Any]) -> Any:
    """A Pallas kernel whose input does not fit the whole of the vector memory."""
    pl = import_module("jax.experimental.pallas")

    def double(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    return jax.jit(pl.pallas_call(double, out_shape=array(16384, 4096))), array(16384, 4096)


def kernel_spills(jax: Any, array: Callable[..., Any]) -> Any:
    """A Pallas kernel that fits by its blocks, but not with what it spills."""
    pl = import_module("jax.experimental.pallas")

    def soften(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jax.nn.softmax(x_ref[...], axis=-1)

    block = pl.BlockSpec((256, 4096), lambda i: (i, 0))
    call = pl.pallas_call(
        soften, out_shape=array(8192, 4096), grid=(32,), in_specs=[block], out_specs=block
    )
    return jax.jit(call), array(8192, 4096)


def kernel_parts(jax: Any, array: Callable[..., Any]) -> Any:
    """A Pallas kernel that may use all of the vector memory, and needs more than that has."""
    pl, tpu = (import_module(f"jax.experimental.pallas{name}") for name in ("", ".tpu"))

    def soften(x_ref: Any, o_ref: Any, kept: Any) -> None:
        kept[...] = jax.nn.softmax(x_ref[...], axis=-1)
        o_ref[...] = kept[...] + 1

    block = pl.BlockSpec((128, 4096), lambda i: (i, 0))
    call = pl.pallas_call(
        soften,
        out_shape=array(8192, 4096),
        grid=(64,),
        in_specs=[block],
        out_specs=block,
        scratch_shapes=[tpu.VMEM((128, 4096), "float32")],
        compiler_params=tpu.CompilerParams(vmem_limit_bytes=1 << 30),
    )
    return jax.jit(call), array(8192, 4096)


def kernel_table(jax: Any, array: Callable[..., Any]) -> Any:
    """A Pallas kernel whose prefetched numbers do not fit the scalar memory."""
    pl, tpu = (import_module(f"jax.experimental.pallas{name}") for name in ("", ".tpu"))

    def pick(_: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    block = (8, 128)
    call = pl.pallas_call(
        pick,
        out_shape=array(8, 512),
        grid_spec=tpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(4,),
            in_specs=[pl.BlockSpec(block, lambda i, table: (0, table[i]))],
            out_specs=pl.BlockSpec(block, lambda i, _: (0, i)),
        ),
    )

    def run(table: Any, x: Any) -> Any:
        return call(table.astype("int32"), x)

    return jax.jit(run), array(1 << 20), array(8, 512)


def one_large(jax: Any) -> None:
    """An array larger than the device."""
    jax.numpy.ones((50 * 2**30,), "float32").block_until_ready()


def gradients(jax: Any) -> None:
    """A network whose activations do not fit beside its parameters."""

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = jax.nn.gelu(x @ w)
        return (x**2).mean()

    ws = [jax.numpy.ones((8192, 8192), "float32") for _ in range(24)]
    x = jax.numpy.ones((131072, 8192), "float32")
    jax.block_until_ready(jax.jit(jax.value_and_grad(loss))(ws, x))


def many_arrays(jax: Any) -> None:
    """Arrays that Python keeps until the device is full."""
    kept = []
    while True:
        kept.append(jax.numpy.ones((2**30,), "float32").block_until_ready())


def fragmented(jax: Any) -> None:
    """Enough free memory, but in pieces."""
    kept = [jax.numpy.ones((2**27,), "float32") for _ in range(180)]
    jax.block_until_ready(kept)
    del kept[::2]
    jax.numpy.ones((2**33,), "float32").block_until_ready()


def rematerialized(jax: Any) -> None:
    """A network that recomputation does not make small enough; compiled, not run."""
    jnp = jax.numpy

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = jnp.tanh(x @ w)
        return (x**2).mean()

    ws = [jax.ShapeDtypeStruct((8192, 8192), jnp.float32)] * 60
    x = jax.ShapeDtypeStruct((262144, 8192), jnp.float32)
    jax.jit(jax.value_and_grad(loss)).lower(ws, x).compile()


PROGRAMS: dict[str, dict[str, Callable[..., Any]]] = {
    "tpu": {
        each.__name__: each
        for each in (
            arguments,
            temporaries,
            padded_convolution,
            padded_sort,
            one_allocation,
            kernel_blocks,
            kernel_whole,
            kernel_spills,
            kernel_parts,
            kernel_table,
        )
    },
    "gpu": {
        each.__name__: each
        for each in (one_large, gradients, many_arrays, fragmented, rematerialized)
    },
}


FLAGS = {"kernel_parts": "--xla_tpu_override_vmem_size_kib=8192"}
"""Flags of libtpu: a chip with less vector memory makes a small kernel fail."""


def provoke(backend: str, name: str) -> None:
    """Compiles or runs one program."""
    jax: Any = import_module("jax")  # only whoever records has it

    jax.config.update("jax_hlo_source_file_canonicalization_regex", r".*/(?=tools/)")
    if backend == "gpu":
        PROGRAMS[backend][name](jax)
        return
    os.environ["LIBTPU_INIT_ARGS"] = FLAGS.get(name, "")
    topologies = import_module("jax.experimental.topologies")

    chips = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2x1").devices
    sharding = jax.sharding.SingleDeviceSharding(chips[0])

    def array(*dimensions: int) -> Any:
        return jax.ShapeDtypeStruct(dimensions, jax.numpy.float32, sharding=sharding)

    function, *shapes = PROGRAMS[backend][name](jax, array)
    function.lower(*shapes).compile()


def main(arguments: list[str]) -> None:
    """All programs of a backend, or one."""
    backend, target = arguments
    if target in PROGRAMS[backend]:
        provoke(backend, target)
        return
    Path(target).mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS[backend]:
        line = [sys.executable, "-m", "tools.record_oom", backend, name]
        with (Path(target) / f"{name}.txt").open("w") as file:
            environment = os.environ | ENVIRONMENT[backend]
            subprocess.run(
                line,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
