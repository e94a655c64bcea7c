"""The jobs that `tools/record_jobs.py` records: loops of the kinds people run, small ones.

Each is a function of a job (`hlomem.jax.job_script`), so that it runs on a device, where it is
recorded, and is rehearsed without one:

    hlomem job tools/recorded_jobs.py:train --target cuda-h200

`HLOMEM_SMALL=1` makes them tiny, for a dry run on a CPU.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
np: Any = import_module("numpy")
SMALL = bool(os.environ.get("HLOMEM_SMALL"))
WIDTH, LAYERS, VOCABULARY, BATCH, LENGTH = (64, 2, 128, 2, 32) if SMALL else (1024, 4, 8000, 8, 512)
MIB = 1 << (10 if SMALL else 20)
ALL_STATE = (0, 1, 2)


# A small GPT with Adam


def init(key: Any) -> Any:
    keys = jax.random.split(key, 5)
    shapes = {
        "embedding": (VOCABULARY, WIDTH),
        "attention": (LAYERS, WIDTH, 3 * WIDTH),
        "output": (LAYERS, WIDTH, WIDTH),
        "up": (LAYERS, WIDTH, 4 * WIDTH),
        "down": (LAYERS, 4 * WIDTH, WIDTH),
    }
    named = zip(keys, shapes.items(), strict=True)
    return {name: jax.random.normal(key, shape) * 0.02 for key, (name, shape) in named}


def zeros(parameters: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, parameters), jax.tree.map(jnp.zeros_like, parameters)


def layer(x: Any, weights: Any) -> Any:
    batch, length, _ = x.shape
    h = x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
    heads = (h @ weights["attention"].astype(h.dtype)).reshape(batch, length, 3 * WIDTH // 64, 64)
    q, k, v = jnp.split(heads, 3, 2)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    share = jax.nn.softmax(scores.astype(jnp.float32), -1).astype(x.dtype)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", share, v).reshape(batch, length, WIDTH)
    x = x + mixed @ weights["output"].astype(x.dtype)
    return x + jax.nn.gelu(x @ weights["up"].astype(x.dtype)) @ weights["down"].astype(x.dtype)


def logits(parameters: Any, tokens: Any, block: Any = layer) -> Any:
    x = parameters["embedding"][tokens].astype(jnp.bfloat16)
    stacked = {name: w for name, w in parameters.items() if name != "embedding"}
    x, _ = jax.lax.scan(lambda carry, w: (block(carry, w), None), x, stacked)
    return (x @ parameters["embedding"].T.astype(x.dtype)).astype(jnp.float32)


def loss_of(parameters: Any, tokens: Any, block: Any = layer) -> Any:
    scores = jax.nn.log_softmax(logits(parameters, tokens, block))
    return -jnp.mean(jnp.take_along_axis(scores, tokens[..., None], -1))


def update(parameters: Any, first: Any, second: Any, gradients: Any) -> Any:
    first = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda a, g: 0.99 * a + 0.01 * g * g, second, gradients)
    moved = jax.tree.map(
        lambda p, m, v: p - 1e-4 * m / (jnp.sqrt(v) + 1e-8), parameters, first, second
    )
    return moved, first, second


def train_step(parameters: Any, first: Any, second: Any, tokens: Any) -> Any:
    loss, gradients = jax.value_and_grad(loss_of)(parameters, tokens)
    return (*update(parameters, first, second, gradients), loss)


def eval_step(parameters: Any, tokens: Any) -> Any:
    return loss_of(parameters, tokens), jnp.argmax(logits(parameters, tokens), -1)


gradients_of = jax.grad(loss_of)


def add(one: Any, other: Any) -> Any:
    return jax.tree.map(jnp.add, one, other)


def tokens(rows: int = BATCH, length: int = LENGTH) -> Any:
    return np.zeros((rows, length), np.int32)


def make_state(job: Any) -> Any:
    key = job.put(np.array([0, 7], np.uint32))
    parameters = job.call(init, key)
    first, second = job.call(zeros, parameters)
    job.wait(second)
    job.mark("state")
    return parameters, first, second


def train_loop(job: Any, steps: int = 6) -> None:
    parameters, first, second = make_state(job)
    for step in range(steps):
        batch = job.put(tokens())
        parameters, first, second, loss = job.call(
            train_step, parameters, first, second, batch, donate=ALL_STATE
        )
        job.wait(loss)
        job.mark(f"step {step}")


@contextmanager
def expecting(job: Any) -> Iterator[None]:
    """An error is part of the job; whoever records it notes it."""
    try:
        yield
    except Exception as error:
        note = getattr(job, "note_error", None)
        if note is None:
            raise
        note(error)


# The jobs


def train(job: Any) -> None:
    train_loop(job)


def preallocated(job: Any) -> None:
    train_loop(job)


def evaluate(job: Any) -> None:
    parameters, first, second = make_state(job)
    for step in range(4):
        batch = job.put(tokens())
        parameters, first, second, loss = job.call(
            train_step, parameters, first, second, batch, donate=ALL_STATE
        )
        job.wait(loss)
        job.mark(f"step {step}")
        if step % 2:
            held_out = job.put(tokens(2 * BATCH))
            loss, guesses = job.call(eval_step, parameters, held_out)
            job.wait(guesses)
            job.mark(f"evaluated {step}")


def restore(job: Any) -> None:
    parameters, first, second = make_state(job)
    saved = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), (parameters, first, second))
    restored = job.put(saved)
    job.wait(restored)
    job.mark("both")
    parameters, first, second = restored
    del restored
    job.mark("old state dropped")
    for step in range(3):
        batch = job.put(tokens())
        parameters, first, second, loss = job.call(
            train_step, parameters, first, second, batch, donate=ALL_STATE
        )
        job.wait(loss)
        job.mark(f"step {step}")


def accumulate(job: Any) -> None:
    parameters, first, second = make_state(job)
    for step in range(2):
        total = job.call(gradients_of, parameters, job.put(tokens()), name="gradients")
        for part in range(3):
            more = job.call(gradients_of, parameters, job.put(tokens()), name="gradients")
            total = job.call(add, total, more, donate=(0,))
            job.wait(total)
            job.mark(f"part {step}.{part}")
        parameters, first, second = job.call(
            update, parameters, first, second, total, donate=ALL_STATE
        )
        job.wait(parameters)
        del total, more
        job.mark(f"step {step}")


def generate(weights: Any, noise: Any) -> Any:
    hidden = jnp.tanh(noise @ weights[0])
    return jnp.tanh(hidden @ weights[1])


def criticise(weights: Any, samples: Any) -> Any:
    return jax.nn.gelu(samples @ weights[0]) @ weights[1]


def critic_step(critic: Any, generator: Any, noise: Any, real: Any) -> Any:
    def loss(weights: Any) -> Any:
        fake = criticise(weights, generate(generator, noise))
        return jnp.mean(fake) - jnp.mean(criticise(weights, real))

    return jax.tree.map(lambda w, g: w - 1e-4 * g, critic, jax.grad(loss)(critic))


def generator_step(generator: Any, critic: Any, noise: Any) -> Any:
    def loss(weights: Any) -> Any:
        return -jnp.mean(criticise(critic, generate(weights, noise)))

    return jax.tree.map(lambda w, g: w - 1e-4 * g, generator, jax.grad(loss)(generator))


def alternate(job: Any) -> None:
    """Two programs take turns: a generator and its critic."""
    rows, wide = (64, 32) if SMALL else (16384, 4096)
    normal = partial(np.full, fill_value=0.01, dtype=np.float32)
    generator = job.put([normal((wide, 2 * wide)), normal((2 * wide, wide))])
    critic = job.put([normal((wide, 2 * wide)), normal((2 * wide, 1))])
    noise, real = job.put(normal((rows, wide))), job.put(normal((rows, wide)))
    job.wait(real)
    job.mark("state")
    for step in range(3):
        critic = job.call(critic_step, critic, generator, noise, real, donate=(0,))
        generator = job.call(generator_step, generator, critic, noise, donate=(0,))
        job.wait(generator)
        job.mark(f"step {step}")


def make_cache(depth: int, batch: int, length: int, heads: int) -> Any:
    shape = depth, batch, length, heads, 64
    return jnp.zeros(shape, jnp.bfloat16), jnp.zeros(shape, jnp.bfloat16)


def forward(x: Any, weights: Any, keys: Any, values: Any, start: Any) -> Any:
    batch, heads = keys.shape[1], keys.shape[3]

    def one(x: Any, given: Any) -> Any:
        w, k, v = given
        q, new_k, new_v, _ = jnp.split(x @ w, 4, -1)

        def split(a: Any) -> Any:
            return a.reshape(batch, x.shape[1], heads, 64)

        k = jax.lax.dynamic_update_slice(k, split(new_k), (0, start, 0, 0))
        v = jax.lax.dynamic_update_slice(v, split(new_v), (0, start, 0, 0))
        scores = jnp.einsum("bqhd,bkhd->bhqk", split(q), k).astype(jnp.float32)
        share = jax.nn.softmax(scores, -1).astype(x.dtype)
        return x + jnp.einsum("bhqk,bkhd->bqhd", share, v).reshape(x.shape), (k, v)

    x, (keys, values) = jax.lax.scan(one, x, (weights, keys, values))
    return x[:, -1:], keys, values


def serve(job: Any, length: int = 0) -> None:
    """Prefill of three lengths and decoding, with a cache of keys and values that is donated."""
    depth, heads, batch = (2, 4, 2) if SMALL else (24, 16, 8)
    length = length or (64 if SMALL else 2048)
    lengths = (8, 16, 32) if SMALL else (128, 512, 1024)
    wide = heads * 64
    keys, values = job.call(partial(make_cache, depth, batch, length, heads), name="cache")
    weights = job.put(np.zeros((depth, wide, 4 * wide), jnp.bfloat16))
    job.wait(values)
    job.mark("cache")
    for prompt in lengths:
        x = job.put(np.ones((batch, prompt, wide), jnp.bfloat16))
        start = job.put(np.int32(0))
        x, keys, values = job.call(
            forward, x, weights, keys, values, start, donate=(2, 3), name=f"prefill {prompt}"
        )
        for token in range(6):
            start = job.put(np.int32(prompt + token))
            x, keys, values = job.call(
                forward, x, weights, keys, values, start, donate=(2, 3), name="decode"
            )
        job.wait(x)
        job.mark(f"served {prompt}")


def step_with_logits(parameters: Any, first: Any, second: Any, tokens: Any) -> Any:
    table = jnp.asarray(TABLE)
    last = logits(parameters, tokens)[:, -8:]
    return (*train_step(parameters, first, second, tokens), last + table.sum())


TABLE = np.ones(1 << (10 if SMALL else 24), np.float32)
"""64 MiB that a program has as a constant."""


def leak(job: Any) -> None:
    """The loop keeps the logits of every step."""
    parameters, first, second = make_state(job)
    kept = []
    for step in range(6):
        batch = job.put(tokens())
        parameters, first, second, loss, last = job.call(
            step_with_logits, parameters, first, second, batch, donate=ALL_STATE
        )
        kept.append((loss, last))
        job.wait(loss)
        job.mark(f"step {step}")
    del kept


def fill(size: int) -> Any:
    return jnp.ones((size,), jnp.float32)


def fragment(job: Any) -> None:
    """Every second of many arrays is dropped; a large one then finds no room among the others."""
    kept = []
    for _ in range(4 if SMALL else 56):
        kept.append(job.call(partial(fill, 32 * MIB), name="fill"))
        job.wait(kept[-1])
    job.mark("filled")
    kept = kept[::2]
    job.mark("every second dropped")
    small = job.call(partial(fill, 32 * MIB), name="fill")
    job.wait(small)
    del small
    large = job.call(partial(fill, 512 * MIB), name="fill_large")
    job.wait(large)


def results(job: Any) -> None:
    """Nothing is donated, and the states of all steps are kept."""
    state = make_state(job)
    kept = [state]
    for step in range(4):
        batch = job.put(tokens())
        *state, loss = job.call(train_step, *state, batch)
        kept.append((state, loss))
        job.wait(loss)
        job.mark(f"step {step}")
    del kept


def ahead(job: Any) -> None:
    """The host runs ahead of the device: nothing is donated and nothing waited for."""
    state = make_state(job)
    for step in range(12):
        batch = job.put(tokens())
        *state, loss = job.call(train_step, *state, batch)
        job.mark(f"step {step}")
    job.wait(loss)


def cross(x: Any) -> Any:
    return jnp.cumsum(jnp.sort(x @ x.T, axis=0), axis=1)


def oom_program(job: Any) -> None:
    """A program that is larger than the pool."""
    rows = 512 if SMALL else 150_000
    x = job.put(np.ones((rows, 64), np.float32))
    job.wait(job.call(cross, x))


def oom_arrays(job: Any) -> None:
    """Arrays that are kept leave a step no room; it runs when some are dropped."""
    state = make_state(job)
    kept = [job.call(partial(fill, 64 * MIB), name="fill") for _ in range(3 if SMALL else 24)]
    job.wait(kept)
    job.mark("kept")
    for _ in range(2):
        batch = job.put(tokens())
        with expecting(job):
            made = job.call(train_step, *state, batch)  # not donated: the state survives a failure
            job.wait(made)
        kept = kept[:-14]
        job.mark(f"{len(kept)} kept")


def oom_tuner(job: Any) -> None:
    """The autotuner, not the program, finds no room: arrays are kept while a matmul is compiled."""
    kept = [job.call(partial(fill, 64 * MIB), name="fill") for _ in range(3 if SMALL else 24)]
    job.wait(kept)
    job.mark("kept")
    rows = 512 if SMALL else 27_000
    x = job.put(np.ones((rows, 64), np.float32))
    job.wait(job.call(cross, x))


def oom_array(job: Any) -> None:
    """One array too many."""
    kept = []
    for _ in range(4 if SMALL else 400):
        kept.append(job.call(partial(fill, 64 * MIB), name="fill"))
        job.wait(kept[-1])


def oom_late(job: Any) -> None:
    """An array fails, and a later line is blamed: 64 GiB asked of a pool with 50 GiB in use."""
    kept = [jnp.ones(64 * MIB, jnp.float32) for _ in range(3 if SMALL else 13)]
    jax.block_until_ready(kept)
    job.mark("kept")
    print(jnp.ones(1600 * MIB, jnp.float32).sum())


def regions(job: Any) -> None:
    """A pool that grows keeps its regions: with nothing in use a larger array finds no room."""
    for count in (9, 18):
        made = job.call(partial(fill, count * 64 * MIB), name=f"fill {count}")
        job.wait(made)
        del made
        job.mark(f"dropped {count}")


def shapes(job: Any) -> None:
    """One function at six lengths, with recomputation, and no tuning."""
    parameters, *_ = state = make_state(job)
    loss = partial(loss_of, block=jax.checkpoint(layer))
    step = jax.value_and_grad(loss)
    for length in (8, 16) if SMALL else (64, 128, 192, 256, 320, 384):
        for _ in range(3):
            batch = job.put(tokens(length=length))
            found, gradients = job.call(step, parameters, batch, name=f"step {length}")
        job.wait(found)
        del gradients
        job.mark(f"length {length}")
    del state


def eager(job: Any) -> None:
    """Libraries with scratch memory of their own, and the host's memory."""
    side = 64 if SMALL else 2048
    x = jax.device_put(np.ones((side, side), np.float32))
    steps: dict[str, Any] = {
        "matmul": lambda: x @ x,
        "sort": lambda: jnp.sort(x, 0),
        "fft": lambda: jnp.fft.fft2(x).real,
        "cholesky": lambda: jnp.linalg.cholesky(x @ x.T + side * jnp.eye(side)),
        "qr": lambda: jnp.linalg.qr(x[:, : side // 4])[0],
        "svd": lambda: jnp.linalg.svd(x[: side // 8, : side // 8])[1],
        "random": lambda: jax.random.normal(jax.random.key(1), (side, side)),
    }
    for name, step in steps.items():
        for _ in range(2):
            jax.block_until_ready(step())
        job.mark(name)
    on = partial(jax.sharding.SingleDeviceSharding, jax.local_devices()[0])
    on_host = jax.device_put(x, on(memory_kind="pinned_host"))
    jax.block_until_ready(on_host)
    job.mark("offloaded")
    jax.block_until_ready(jax.device_put(on_host, on(memory_kind="device")))
    job.mark("fetched")
