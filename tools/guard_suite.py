"""Compiles a fixed suite of small programs, in the environment of any release of JAX.

    python tools/guard_suite.py FOLDER TARGET

Stands alone: it imports nothing but jax. TARGET is `cpu`, or the name of a TPU topology
(`v5e:2x2`), for which no TPU is needed. FOLDER/PROGRAM is XLA's dump of each program, and
FOLDER/versions.json the versions of the packages. A program that does not compile is left out.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_ID": "0",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
    "TPU_MIN_LOG_LEVEL": "3",
}
_DEVICES = 4


def programs(jax: Any) -> Any:
    """Functions of arrays, by name, each with the shapes and types of its arguments."""
    jnp, lax = jax.numpy, jax.lax
    f32, i32, bf16 = jnp.float32, jnp.int32, jnp.bfloat16
    square, row = ((64, 64), f32), ((64,), f32)
    suite: dict[str, Any] = {}

    def program(*shapes: Any, donate: Any = ()) -> Callable[[F], F]:
        def add(function: F) -> F:
            suite[function.__name__] = (function, shapes, donate)
            return function

        return add

    @program(square, square, row)
    def mlp(w: Any, v: Any, x: Any) -> Any:
        return jnp.tanh(jnp.tanh(x @ w) @ v)

    @program(square, square, row)
    def mlp_gradient(w: Any, v: Any, x: Any) -> Any:
        return jax.grad(lambda w, v: jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ v)), (0, 1))(w, v)

    @program(square, row, donate=(0,))
    def donated_update(state: Any, x: Any) -> Any:
        return state.at[3].set(x), jnp.sum(state)

    @program(row)
    def chain(x: Any) -> Any:
        for _ in range(8):
            x = jnp.sin(x) * jnp.roll(x, 3)
        return x

    @program(((256,), f32))
    def sorts(x: Any) -> Any:
        order = jnp.argsort(x)
        values, numbers = lax.top_k(x, 8)
        return x[order], order, values, numbers, jnp.cumsum(x)

    @program(square, ((16,), i32), ((16, 64), f32))
    def scatters(x: Any, at: Any, rows: Any) -> Any:
        return x.at[at].add(rows), x.at[at].max(rows), x[at]

    @program(square, row)
    def scan(w: Any, x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            new = jnp.tanh(carry @ w)
            return new, jnp.max(new)

        return lax.scan(step, x, None, length=12)

    @program(square, row)
    def scan_gradient(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            final, kept = lax.scan(lambda c, _: (jnp.tanh(c @ w), jnp.sum(c)), x, None, length=12)
            return jnp.sum(final) + jnp.sum(kept)

        return jax.grad(loss)(w)

    @program(row, ((), i32))
    def while_loop(x: Any, count: Any) -> Any:
        return lax.while_loop(
            lambda state: state[0] < count, lambda state: (state[0] + 1, state[1] * 2 + 1), (0, x)
        )

    @program(square)
    def nested_loops(x: Any) -> Any:
        def inner(i: Any, y: Any) -> Any:
            return y.at[i].set(jnp.sin(y[i]) + jnp.sum(y))

        return lax.fori_loop(0, 5, lambda _, y: lax.fori_loop(0, 64, inner, y), x)

    @program(((), i32), square, square)
    def branches(which: Any, x: Any, y: Any) -> Any:
        return lax.switch(
            which,
            [lambda a, b: (a @ b, a), lambda a, b: (b, a + 1), lambda a, b: (a.T, b @ b)],
            x,
            y,
        )

    @program(((), i32), square)
    def branch_in_loop(which: Any, x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return lax.cond(i == which, lambda z: z @ z, jnp.cos, y)

        return lax.fori_loop(0, 6, body, x)

    @program(((4, 32, 64), bf16), ((4, 32, 64), bf16), ((4, 32, 64), bf16))
    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bqd,bkd->bqk", q, k) / 8
        mask = jnp.tril(jnp.ones((32, 32), bool))
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9).astype(f32), axis=-1)
        return jnp.einsum("bqk,bkd->bqd", weights.astype(bf16), v)

    @program(((2, 16, 16, 8), f32), ((3, 3, 8, 8), f32))
    def convolution(x: Any, kernel: Any) -> Any:
        return jax.grad(
            lambda k: jnp.sum(
                lax.conv_general_dilated(
                    x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
            )
        )(kernel)

    @program(((2,), jnp.uint32))
    def random(key: Any) -> Any:
        one, two = jax.random.split(jax.random.wrap_key_data(key))
        return jax.random.normal(one, (128,)), jax.random.permutation(two, 64)

    @program(square, square)
    def reductions(x: Any, y: Any) -> Any:
        return jnp.sum(x), jnp.max(y, 0), jnp.prod(x, 1), jnp.argmin(y), jnp.var(x), jnp.mean(y, 1)

    @program(square)
    def decomposition(x: Any) -> Any:
        return jnp.linalg.cholesky(x @ x.T + 64 * jnp.eye(64)), jnp.linalg.qr(x)[1]

    @program(((8, 64), f32), ((8, 64), f32))
    def cache_update(cache: Any, new: Any) -> Any:
        def body(i: Any, kept: Any) -> Any:
            return lax.dynamic_update_slice(kept, new[i][None] + kept[i][None], (i, 0))

        return lax.fori_loop(0, 8, body, cache)

    @program(square, square)
    def mixed_types(x: Any, y: Any) -> Any:
        low = (x.astype(bf16) @ y.astype(bf16)).astype(f32)
        whole = jnp.clip(jnp.round(low), -128, 127).astype(jnp.int8)
        return low, whole, jnp.packbits(whole > 0)

    @program(*[row] * 24)
    def many_arguments(*arrays: Any) -> Any:
        return tuple(a * 2 + b for a, b in itertools.pairwise(arrays))

    @program(((32, 64), f32), square)
    def sharded(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w).sum(0), x - x.mean(0)

    @program(((32, 64), f32), square)
    def sharded_loop(x: Any, w: Any) -> Any:
        return lax.fori_loop(0, 4, lambda _, y: jnp.tanh(y @ w) + jnp.sum(y, 0), x)

    return suite


def main() -> None:
    """Command line."""
    folder, target = Path(sys.argv[1]), sys.argv[2]
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={_DEVICES}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    if target != "cpu":
        os.environ.update(_TPU)
    jax: Any = import_module("jax")  # after the environment is set
    if target == "cpu":
        devices = jax.devices()
    else:
        topologies: Any = import_module("jax.experimental.topologies")
        found = topologies.get_topology_desc(platform="tpu", topology_name=target)
        devices = list(found.devices)
    array = import_module("numpy").array(devices[:_DEVICES])
    mesh = jax.sharding.Mesh(array, ("x",))
    whole = jax.sharding.SingleDeviceSharding(devices[0])
    split, copied = (
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)) for axes in (("x",), ())
    )
    for name, (function, shapes, donate) in programs(jax).items():
        on = [split, *[copied] * len(shapes)] if name.startswith("sharded") else [whole] * 99
        arguments = [
            jax.ShapeDtypeStruct(shape, kind, sharding=sharding)
            for (shape, kind), sharding in zip(shapes, on, strict=False)
        ]
        home = folder / name
        home.mkdir(parents=True)
        lowered = jax.jit(function, donate_argnums=donate).lower(*arguments)
        options = {"xla_dump_to": str(home), "xla_dump_hlo_as_text": True}
        for more in ({"xla_dump_compact_gte": False}, {}):  # the first since 2026 alone
            try:
                lowered.compile(compiler_options=options | more)
            except Exception as error:  # noqa: BLE001 - its class depends on the release
                sys.stderr.write(f"{name}: {str(error)[:200]}\n")
            else:
                break
    versions = {}
    for package in ("jax", "jaxlib", "libtpu"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    (folder / "versions.json").write_text(json.dumps(versions))


if __name__ == "__main__":
    main()
