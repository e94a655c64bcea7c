"""Small programs that show what rules about sparse cores and offloading rest on.

In: a name. Out: a function and its arguments, for `tools.compile_programs`, from which goldens are
made. They came after the rules, unlike those of `tools.programs.production`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tools.programs.on_all import graph_gradient, graph_shapes
from tools.programs.parts import Program, floats, jax, jnp, lax, numbers, on_host, sharding

if TYPE_CHECKING:
    from collections.abc import Sequence


def contexts_of_two_sizes(_: Any) -> Program:
    """Scatters with a small context around a loop of gathers with a large one."""

    def run(amounts: Any, i: Any, table: Any, j: Any, k: Any) -> Any:
        first = jnp.zeros(65536).at[i].add(amounts)
        start = jnp.zeros((4096, 128))
        looked_up, _ = lax.scan(lambda c, ids: (jnp.tanh(c + table[ids]), None), start, j)
        return first, looked_up, jnp.tanh(first).at[k].add(amounts)

    ids = numbers(8192)
    return Program(run, (floats(8192), ids, floats(20000, 128), numbers(4, 4096), ids))


def overlapping_contexts(_: Any) -> Program:
    """Scatters and a gather, each started before the one before it is done."""

    def run(amounts: Any, i: Any, table: Any, j: Any, k: Any) -> Any:
        first = jnp.zeros(65536).at[i].add(amounts)
        return first, table[j], jnp.tanh(first).at[k].add(amounts)

    ids = numbers(8192)
    return Program(run, (floats(8192), ids, floats(20000, 128), numbers(4096), ids))


def queued_updates(_: Any) -> Program:
    """Sums of the same keys, several of whose scatters wait for the sparse core at once."""

    def run(keys: Any, one: Any, other: Any, third: Any) -> Any:
        parts = (jnp.tanh(one), jnp.sin(other), jnp.cos(third))
        return [jnp.zeros(65536).at[keys].add(part) for part in parts]

    amounts = floats(65536)
    return Program(run, (numbers(65536), amounts, amounts, amounts))


def sums_on_sparse_cores(devices: Sequence[Any]) -> Program:
    """Gradients summed over all devices, two at once, beside lookups."""
    return Program(graph_gradient(devices), graph_shapes(devices, 4096, 16384))


def cache_on_host(devices: Sequence[Any]) -> Program:
    """A loop that reads a cache in the host's memory and writes a row of it."""
    here = sharding.SingleDeviceSharding(devices[0], memory_kind="device")
    there = sharding.SingleDeviceSharding(devices[0], memory_kind="pinned_host")

    def run(cache: Any, w: Any, x: Any, position: Any) -> Any:
        def one(number: Any, carried: Any) -> Any:
            x, cache = carried
            held = jax.device_put(lax.dynamic_index_in_dim(cache, number, 0, False), here)
            row = jnp.tanh(x @ w)
            x = x + jnp.einsum("bt,btd->bd", jnp.einsum("bd,btd->bt", row, held), held)
            new = jax.device_put(row[None, :, None], there)
            return x, lax.dynamic_update_slice(cache, new, (number, 0, position, 0))

        held = jax.device_put(cache, jax.memory.Space.Host)  # a no-op that names the space
        return lax.fori_loop(0, 4, one, (x, held))

    cache = on_host(floats(4, 8, 128, 128), devices[0])
    return Program(run, (cache, floats(128, 128), floats(8, 128), numbers()), (0,))


def priced_kernel(_: Any) -> Program:
    """A Pallas kernel whose author says what it costs, and another in place."""
    pallas: Any = import_module("jax.experimental.pallas")
    tpu: Any = import_module("jax.experimental.pallas.tpu")
    shape = jax.ShapeDtypeStruct((512, 256), "float32")

    def multiply(x: Any, y: Any, out: Any) -> None:
        out[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    def double(x: Any, out: Any) -> None:
        out[...] = x[...] * 2

    def run(x: Any, y: Any) -> Any:
        cost = pallas.CostEstimate(
            flops=10**6, bytes_accessed=10**5, transcendentals=3, remote_bytes_transferred=7
        )
        made = pallas.pallas_call(
            multiply,
            out_shape=shape,
            cost_estimate=cost,
            compiler_params=tpu.CompilerParams(internal_scratch_in_bytes=1 << 16),
        )(jnp.sin(x), y)
        return pallas.pallas_call(double, out_shape=shape, input_output_aliases={0: 0})(made)

    return Program(run, (floats(512, 256), floats(256, 256)))


def pipelined_attention(_: Any) -> Program:
    """Layers of attention, which libtpu computes in loops that load blocks in the turn before."""

    def run(ws: Any, x: Any) -> Any:
        def one(x: Any, w: Any) -> Any:
            q, k, v = (p.reshape(16, 512, 4, 128) for p in jnp.split(x @ w, 3, -1))
            scores = jnp.einsum("bthd,bshd->bhts", q, k) / 11.3
            scores = jnp.where(jnp.tril(jnp.ones((512, 512), bool)), scores, -1e9)
            mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, -1), v)
            return x + mixed.reshape(x.shape), None

        return lax.scan(one, x, ws)[0]

    return Program(run, (floats(2, 512, 1536), floats(16, 512, 512)))


SPARSE_CORE_PROGRAMS = {
    maker.__name__: maker
    for maker in (
        contexts_of_two_sizes,
        overlapping_contexts,
        queued_updates,
        sums_on_sparse_cores,
        cache_on_host,
        priced_kernel,
        pipelined_attention,
    )
}


def program(name: str, devices: Sequence[Any]) -> Any:
    """The factory: a program by name."""
    made = SPARSE_CORE_PROGRAMS[name](devices)
    return jax.jit(made.function, donate_argnums=made.donated), made.arguments
