"""Small programs that between them use most operations, compiled with dumps as text and as protos.

    python programs.py OUT cpu|tpu|cuda [NAME ...]

Run it from a folder whose path may stand in the dumps: XLA writes it into them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.update(
    TPU_SKIP_MDS_QUERY="1",
    TPU_WORKER_ID="0",
    TPU_WORKER_HOSTNAMES="localhost",
    TPU_ACCELERATOR_TYPE="v5litepod-4",
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",
    JAX_PLATFORMS="cpu",
)

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import topologies

PROGRAMS = {}


def program(*shapes, **options):
    def add(function):
        PROGRAMS[function.__name__] = (function, shapes, options)
        return function

    return add


@program((64, 64))
def tanh_dot(x):
    return jnp.tanh(x @ x)


@program((8, 64, 64), (32, 64))
def scan_layers(layers, x):
    return lax.scan(lambda h, w: (jnp.tanh(h @ w), h.sum()), x, layers)


@program((8, 64, 64), (32, 64), donate_argnums=(0,))
def train(layers, x):
    def loss(layers):
        h, _ = lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, layers)
        return (h**2).sum()

    return layers - 0.1 * jax.grad(loss)(layers)


@program((4, 16, 16, 3), (3, 3, 3, 8))
def convolution(x, kernel):
    return lax.conv_general_dilated(
        x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@program((4, 16, 16, 8))
def max_pool(x):
    return jax.grad(
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()
    )(x)


@program((100, 16), (32,))
def gather_rows(table, numbers):
    rows = numbers.astype(jnp.int32)
    return jax.grad(lambda t: (t[rows] ** 2).sum())(table)


@program((100, 16), (32, 16), (32,))
def scatter_rows(table, rows, numbers):
    return table.at[numbers.astype(jnp.int32)].add(rows)


@program((256,), (256,))
def sort_pairs(keys, values):
    return lax.sort((keys, values), num_keys=1)


@program((256, 128))
def top_values(x):
    return lax.top_k(x, 5)


@program((32, 32))
def branches(x):
    return lax.cond(x.sum() > 0, lambda x: x @ x, lambda x: x.T + 1, x)


@program((32, 32))
def many_branches(x):
    number = jnp.int32(x.sum())
    return lax.switch(number, [lambda x: x, lambda x: x @ x, jnp.sort], x)


@program((32, 32))
def while_loop(x):
    return lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 1, c[1] @ c[1]), (0, x))


@program((16, 128))
def softmax(x):
    return jax.nn.softmax(x)


@program((16, 64, 64))
def attention(x):
    scores = jnp.einsum("hqd,hkd->hqk", x, x)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores.astype(jnp.bfloat16)), x)


@program((64,))
def random_bits(x):
    key = jax.random.PRNGKey(0)
    return x + jax.random.normal(key, x.shape)


@program((32, 64))
def fourier(x):
    return jnp.abs(jnp.fft.fft(x))


@program((32, 32))
def cholesky(x):
    return jnp.linalg.cholesky(x @ x.T + jnp.eye(32))


@program((32, 32), (32, 8))
def triangular(a, b):
    return jax.scipy.linalg.solve_triangular(a, b, lower=True)


@program((100,))
def pad_and_slice(x):
    return lax.pad(x, 0.0, [(3, 5, 1)])[2:100:3]


@program((64, 64), (16, 16))
def update_part(x, part):
    return lax.dynamic_update_slice(x, part, (3, 4)), lax.dynamic_slice(x, (5, 6), (8, 8))


@program((64, 64), donate_argnums=(0,))
def donated(x):
    return x + 1


@program((8, 8))
def constants(x):
    table = jnp.arange(64.0).reshape(8, 8) ** 2
    return x + table, jnp.array([1, 2, 3]), jnp.array(True), jnp.float32(2.5)


@program((128, 64))
def reductions(x):
    return x.max(), x.argmax(1), jnp.cumsum(x, 0), x.astype(jnp.bfloat16).sum(0)


@program((4, 64, 64), (16, 64))
def checkpointed(layers, x):
    @jax.checkpoint
    def layer(h, w):
        return jnp.sin(h @ w), None

    return jax.grad(lambda layers: (lax.scan(layer, x, layers)[0]).sum())(layers)


@program((16, 256, 256), (256,))
def matrix_vector_bits(a, x):
    a = a.astype(jnp.int8)
    return jnp.einsum("bij,j->bi", a.astype(jnp.float32), x).astype(jnp.float16)


@program((512, 512), (512, 2048), (2048, 512))
def mlp(x, up, down):
    return jax.grad(lambda u, d: (jax.nn.gelu(x @ u) @ d).sum(), argnums=(0, 1))(up, down)


def sharding_for(platform):
    if platform == "cpu":
        return None
    if platform == "tpu":
        topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
    else:
        config = Path(os.environ["TARGET_CONFIG"]).read_text()
        topology = topologies.get_topology_desc(
            platform="cuda", topology_name="", target_config=config, topology="1x1x1"
        )
    return jax.sharding.SingleDeviceSharding(topology.devices[0])


def compile_one(name, sharding, out):
    function, shapes, options = PROGRAMS[name]
    arguments = [jax.ShapeDtypeStruct(s, jnp.float32, sharding=sharding) for s in shapes]
    lowered = jax.jit(function, **options).lower(*arguments)
    dump = {"xla_dump_to": str(out), "xla_dump_hlo_as_text": True, "xla_dump_hlo_as_proto": True}
    compiled = lowered.compile(compiler_options=dump)
    executable = compiled.runtime_executable()
    (out / "executable.bin").write_bytes(executable.serialize())
    (out / "module.pb").write_bytes(executable.hlo_modules()[0].as_serialized_hlo_module_proto())


def main(out, platform, *names):
    sharding = sharding_for(platform)
    for name in names or PROGRAMS:
        folder = Path(out) / name
        folder.mkdir(parents=True, exist_ok=True)
        compile_one(name, sharding, folder)
        print(name, "compiled", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
