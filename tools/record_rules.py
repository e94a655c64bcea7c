"""Compiles the programs that show what rules about the order of XLA's computations rest on.

    python -m tools.record_rules cpu | gpu --target SPEC | tpu [--chip CHIP] [PROGRAM...]

Runs in an environment with jax and, for `gpu`, its CUDA plugin or, for `tpu`, libtpu; neither needs
the machine. SPEC is `xla/backends/gpu/target_config/specs/h200.txtpb` of openxla/xla. Writes what
XLA dumps to tests/goldens/xla. Every program is compiled in a process of its own, since XLA reads
its flags once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.programs import passes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GOLDENS = Path(__file__).parent.parent / "tests" / "goldens" / "xla"
CHIPS = {"cpu": "", "gpu": "h200", "tpu": "v5e"}
"""The chip of each platform, unless another is asked for."""
TOPOLOGIES = {"v4": "2x2x1", "v5e": "2x2x1", "v5p": "2x2x1", "v6e": "2x2x1", "tpu7x": "2x2x1"}
_DEVICES = 4
_FLAGS = (
    "--xla_dump_hlo_as_text",
    "--xla_dump_compact_gte=false",
    f"--xla_force_host_platform_device_count={_DEVICES}",
    "--xla_gpu_autotune_level=0",
)
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    # Names files from the project or the package on, whatever folder they lie in.
    "JAX_HLO_SOURCE_FILE_CANONICALIZATION_REGEX": r".*/(?=tools/)|.*/site-packages/",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
_FILES = {
    ".txt": "module.hlo",
    "-buffer-assignment.txt": "buffer-assignment.txt",
    "-buffer-assignment-values.txt": "values.txt",
    "-live-range.txt": "live-range.txt",
    "-memory-usage-report.txt": "memory-usage-report.txt",
}
_STEM = "after_optimizations"

# Programs: a function of jax, the shapes of its arguments, and how they lie on four devices.


def top_k_loop(jax: Any, x: Any, y: Any, k: Any, n: Any) -> Any:
    """Top-k of three types, in a loop and outside."""
    jnp, lax = jax.numpy, jax.lax

    def body(i: Any, carried: Any) -> Any:
        values, _ = lax.top_k(carried + i, 8)
        return carried.at[:, :8].add(values) + jnp.sum(lax.top_k(y, 3)[0].astype(jnp.float32))

    looped = lax.fori_loop(0, n, body, x)
    sorts = lax.top_k(k, 2), lax.top_k(x[0], 5), jnp.sort(y, axis=0)
    return looped, sorts, jnp.sum(y, axis=0)


def sorts_in_loops(jax: Any, x: Any, k: Any, n: Any) -> Any:
    """Stable sorts of several types in two loops, a branch and outside."""
    jnp, lax = jax.numpy, jax.lax

    def body(carried: Any) -> Any:
        i, keys, values = carried
        keys, values = lax.sort((keys, values), num_keys=1, is_stable=True)
        values = lax.cond(i > 1, lambda v: lax.sort(-v, is_stable=True), lambda v: v[::-1], values)
        return i + 1, keys + 1, values

    def step(carried: Any, addend: Any) -> Any:
        carried = lax.sort(carried + addend, is_stable=True)
        return carried, jnp.argsort(carried, descending=True)

    looped = lax.while_loop(lambda carried: carried[0] < n, body, (0, k, x))
    scanned = lax.scan(step, x, x[:4])
    narrow = lax.sort((x.astype(jnp.bfloat16), k), num_keys=1, is_stable=True)
    return looped, scanned, narrow, jnp.lexsort((k, x))


def sharded_loops(jax: Any, x: Any, w: Any, n: Any) -> Any:
    """Loops in a loop, with a branch, spread over four devices."""
    jnp, lax = jax.numpy, jax.lax

    def body(i: Any, carried: Any) -> Any:
        carried = jnp.tanh(carried @ w)
        carried = lax.cond(i > 1, lambda c: c - jnp.mean(c, 0), lambda c: c * jnp.max(c), carried)
        inner = lambda _, c: c + jnp.sum(c, axis=1, keepdims=True)  # noqa: E731
        return lax.fori_loop(0, i, inner, carried)

    y = lax.fori_loop(0, n, body, x)
    scanned = lax.scan(lambda c, row: (c * jnp.sum(row), jnp.max(row)), jnp.float32(1), y)
    return y, scanned, lax.top_k(jnp.sum(y, 0), 2)


def gathers_and_scatters(jax: Any, x: Any, i: Any, u: Any) -> Any:
    """Gathers and scatters of every kind, in a loop and outside."""
    jnp, lax = jax.numpy, jax.lax

    def step(carried: Any, shift: Any) -> Any:
        scattered = x.at[i + shift].add(u * carried).at[i].max(u)
        gathered = jnp.take(scattered, i + 1, axis=0, mode="fill")
        return jnp.sum(gathered), scattered.at[i].mul(u, mode="drop")

    carried, scattered = lax.scan(step, jnp.sum(x), jnp.arange(3))
    sums = jax.ops.segment_sum(u, i, num_segments=4)
    found = jnp.searchsorted(x[:, 0], u[:, 0]), jnp.bincount(i, length=8), jnp.unique(i, size=4)
    return carried, scattered, sums, x.at[i].min(u, unique_indices=True), found


def sorts_in_functions(jax: Any, x: Any, k: Any) -> Any:
    """Stable sorts in a loop of a function that is called twice, and in a loop outside."""
    lax = jax.lax

    def looped(start: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, c: lax.sort(c + i, is_stable=True), start)

    def sort_both(keys: Any, values: Any) -> Any:
        return lax.sort((keys, values), num_keys=1, is_stable=True)

    function = jax.jit(looped)
    inside = function(x), function(x * 2), sort_both(k, x)
    return *inside, lax.fori_loop(0, 2, lambda i, c: sort_both(c[0] + i, c[1]), (k, x))


def sorts_in_nested_loops(jax: Any, x: Any, k: Any, n: Any) -> Any:
    """Stable sorts in a loop in a loop, in a function that is called twice."""
    jnp, lax = jax.numpy, jax.lax

    def sort(*operands: Any) -> Any:
        return lax.sort(operands, num_keys=1, is_stable=True)

    def body(i: Any, carried: Any) -> Any:
        return lax.fori_loop(0, i, lambda j, c: sort(c * j)[0], sort(carried, k)[0])

    function = jax.jit(lambda start: lax.fori_loop(0, n, body, start))
    return function(x), function(x + 1), sort(k)[0], jnp.sum(x)


def large_loop(jax: Any, x: Any, n: Any) -> Any:
    """A loop over two arrays and a maximum, beside a scan and a sort of the same."""
    jnp, lax = jax.numpy, jax.lax

    def body(_: Any, carried: Any) -> Any:
        one, other, largest = carried
        return jnp.sin(one) + other, jnp.exp(other * one), jnp.max(one) + largest

    looped = lax.fori_loop(0, n, body, (x, x, 0.0))
    return looped, jnp.cumsum(x, 0), jnp.sort(x, 1)


def triangle(jax: Any, a: Any) -> Any:
    """An expander of linear algebra, which builds reducers, beside one of the program's own."""
    return jax.numpy.linalg.cholesky(a), jax.numpy.sum(a, 0)


def top_k_and_products(jax: Any, x: Any, y: Any) -> Any:
    """Products that become reductions, beside a scan and a top-k."""
    jnp = jax.numpy
    rows, columns = jnp.einsum("ij,ij->i", x, y), jnp.einsum("ij,ij->j", x, y)
    return rows, jnp.cumsum(x, 1), columns, jax.lax.top_k(x, 2)


def sharded_top_k(jax: Any, x: Any) -> Any:
    """Top-k along both dimensions of what is spread over four devices."""
    return jax.lax.top_k(x, 4), jax.lax.top_k(x.T, 2)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...], tuple[tuple[Any, ...], ...]]] = {
    "top_k_loop": (top_k_loop, ("f32 8 32", "bf16 8 32", "s32 8 32", "s32"), ()),
    "sorts_in_loops": (sorts_in_loops, ("f32 64", "s32 64", "s32"), ()),
    "sharded_loops": (sharded_loops, ("f32 32 64", "f32 64 64", "s32"), (("d", None), (), ())),
    "sorts_in_functions": (sorts_in_functions, ("f32 64", "s32 64"), ()),
    "sorts_in_nested_loops": (sorts_in_nested_loops, ("f32 64", "s32 64", "s32"), ()),
    "large_loop": (large_loop, ("f32 1024 1024", "s32"), ()),
    "triangle": (triangle, ("f32 8 8",), ()),
    "top_k_and_products": (top_k_and_products, ("f32 32 64", "f32 32 64"), ()),
    "sharded_top_k": (sharded_top_k, ("f32 64 64",), (("d", None),)),
    "gathers_and_scatters": (gathers_and_scatters, ("f32 32 8", "s32 6", "f32 6 8"), ()),
    **passes.PROGRAMS,
}
RECORDED = {
    "cpu": (
        "top_k_loop",
        "sharded_loops",
        "convolution_gradient",
        "pooling_gradient",
        "deep_loops",
        "functions_with_loops",
        "split_scatters",
    ),
    "gpu-h200": (
        "sorts_in_functions",
        "sorts_in_loops",
        "sorts_in_nested_loops",
        "top_k_and_products",
    ),
    "tpu-v5e": (
        "gathers_and_scatters",
        "large_loop",
        "triangle",
        "top_k_and_products",
        "sharded_top_k",
    ),
    "tpu-v5p": (
        "branches_with_rows",
        "complex_loop",
        "functions_with_loops",
        "points_of_table",
        "split_loop",
        "split_statistics",
        "two_nests",
    ),
    "tpu-v6e": ("sorts_and_sums",),
    "tpu-tpu7x": ("cholesky_solve",),
}
"""The programs recorded for each machine."""
_TYPES = {"f32": "float32", "bf16": "bfloat16", "s32": "int32"}


def compile_program(name: str, platform: str, chip: str, target: Path | None) -> None:
    """Compiles a program for a machine that need not be there."""
    jax: Any = import_module("jax")
    function, shapes, specs = PROGRAMS[name]
    devices = _devices(jax, platform, chip, target, _DEVICES if specs else 1)
    sharding = jax.sharding
    mesh = _mesh(sharding, devices, name)
    arguments = []
    for place, shape in enumerate(shapes):
        element, *dimensions = shape.split()
        spread = (
            sharding.NamedSharding(mesh, sharding.PartitionSpec(*specs[place]))
            if specs
            else sharding.SingleDeviceSharding(devices[0])
        )
        dtype = getattr(jax.numpy, _TYPES[element])
        arguments.append(jax.ShapeDtypeStruct(map(int, dimensions), dtype, sharding=spread))

    def program(*given: Any) -> Any:
        return function(jax, *given)

    program.__name__ = name
    jax.jit(program).lower(*arguments).compile()


def _mesh(sharding: Any, devices: Any, name: str) -> Any:
    """Devices in one row, or two by two."""
    row = import_module("numpy").array(devices[:_DEVICES])
    if name in passes.PROGRAMS and len(row) == _DEVICES:
        return sharding.Mesh(row.reshape(2, 2), ("x", "y"))
    return sharding.Mesh(row, ("d",))


def _devices(jax: Any, platform: str, chip: str, target: Path | None, count: int) -> Any:
    if platform == "cpu":
        return jax.devices()
    describe = import_module("jax.experimental.topologies").get_topology_desc
    if platform == "tpu":
        return describe(platform="tpu", topology_name=f"{chip}:{TOPOLOGIES[chip]}").devices
    assert target is not None, "--target is needed"
    config = target.read_text(encoding="utf-8")
    topology = f"1x{count}x1"
    return describe(
        platform="cuda", topology_name="", target_config=config, topology=topology
    ).devices


def record(name: str, platform: str, chip: str, target: Path | None) -> None:
    """Compiles a program and keeps what XLA wrote."""
    package = "libtpu" if platform == "tpu" else "jaxlib"
    home = GOLDENS / f"{package}-{metadata.version(package)}" / _machine(platform, chip) / name
    with tempfile.TemporaryDirectory() as scratch:
        flags = " ".join((f"--xla_dump_to={scratch}", *_FLAGS))
        line = [sys.executable, "-m", "tools.record_rules", platform, "--compile", name]
        line += ["--chip", chip] if chip else []
        line += [] if target is None else ["--target", str(target)]
        subprocess.run(line, check=True, env=os.environ | _ENVIRONMENT | {"XLA_FLAGS": flags})
        _keep(Path(scratch), name, home)
    versions = {used: metadata.version(used) for used in ("jax", "jaxlib", package)}
    origin = {
        "program": name,
        "backend": platform,
        "chip": chip,
        "era": "K",
        "versions": versions,
        "scheduled": True,
        "written_by": f"XLA, from {name} of {_home(name)}",
    }
    (home / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")


def _home(name: str) -> str:
    is_small = name in passes.PROGRAMS
    return f"tools/{'programs/passes' if is_small else 'record_rules'}.py"


def _machine(platform: str, chip: str) -> str:
    return "-".join(filter(None, (platform, chip)))


def _keep(scratch: Path, name: str, home: Path) -> None:
    dump = next(scratch.glob(f"*jit_{name}*{_STEM}-buffer-assignment.txt"))
    stem = dump.name.removesuffix("-buffer-assignment.txt")
    home.mkdir(parents=True, exist_ok=True)
    for suffix, kept in _FILES.items():
        shutil.copyfile(scratch / f"{stem}{suffix}", home / kept)


def main(arguments: Sequence[str] | None = None) -> None:
    """Records the programs of a platform, or compiles one for `record`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("platform", choices=sorted(CHIPS))
    parser.add_argument("program", nargs="*", help="default: all of the machine's")
    parser.add_argument("--chip", choices=sorted(TOPOLOGIES), help="the TPU, by default v5e")
    parser.add_argument("--target", type=Path, help="the GPU to compile for")
    parser.add_argument("--compile", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    chip = options.chip or CHIPS[options.platform]
    if options.compile:
        compile_program(options.compile, options.platform, chip, options.target)
        return
    for name in options.program or RECORDED[_machine(options.platform, chip)]:
        record(name, options.platform, chip, options.target)


if __name__ == "__main__":
    main()
