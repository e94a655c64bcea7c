"""Factories that tests hand to a child process, good and bad ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any


def step(devices: Any, batch: int = 8, width: int = 64, remat: str = "none") -> Any:
    """A training step of a small network."""
    jax: Any = import_module("jax")
    jnp: Any = import_module("jax.numpy")
    assert devices

    def layer(hidden: Any, weight: Any) -> Any:
        return jnp.tanh(hidden @ weight)

    layer = jax.checkpoint(layer) if remat == "full" else layer

    def loss(params: Any, x: Any) -> Any:
        hidden, _ = jax.lax.scan(lambda h, w: (layer(h, w), None), x, params["layers"])
        return (hidden**2).sum()

    def train_step(params: Any, x: Any) -> Any:
        return jax.tree.map(lambda p, g: p - g, params, jax.grad(loss)(params, x))

    shape = jax.ShapeDtypeStruct
    params = {"layers": shape((4, width, width), "float32")}
    return jax.jit(train_step, donate_argnums=0), (params, shape((batch, width), "float32"))


def checkpointed(
    batch: int = 2048, width: int = 32, layers: int = 6, checkpoint: Any = lambda function: function
) -> Any:
    """A training step whose layers are wrapped by what it is given."""
    jax: Any = import_module("jax")
    jnp: Any = import_module("jax.numpy")

    def layer(hidden: Any, weight: Any) -> Any:
        return jnp.tanh(jnp.sin(hidden) @ weight)

    def loss(weights: Any, x: Any) -> Any:
        for weight in weights:
            x = checkpoint(layer)(x, weight)
        return (x**2).sum()

    shape = jax.ShapeDtypeStruct
    weights = [shape((width, width), "float32")] * layers
    return jax.jit(jax.value_and_grad(loss)), (weights, shape((batch, width), "float32"))


def keyworded() -> Any:
    """A plain function with keywords."""
    jax: Any = import_module("jax")
    shape = jax.ShapeDtypeStruct((16, 16), "float32")
    return lambda x, *, y: x @ y, (shape,), {"y": shape}


def lowered() -> Any:
    """A program that is lowered already."""
    function, arguments = step([None])
    return function.lower(*arguments)


def raises(depth: int = 2) -> Any:
    """Fails, some calls deep."""
    if depth:
        return raises(depth - 1)
    raise ValueError("the configuration has no width")


def returns_nothing() -> None:
    """Forgets to return its program."""


def dies() -> None:
    """Takes its process with it."""
    sys.stderr.write("about to die\n")
    os._exit(7)


def is_killed() -> None:
    """Ends as when the machine has no memory left."""
    os.kill(os.getpid(), signal.SIGKILL)


def aborts() -> None:
    """Ends as when a library finds itself in a state that cannot be."""
    os.abort()


def hangs(pids: str) -> None:
    """Starts another process, says who they are, and never ends."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    part = Path(f"{pids}.part")
    part.write_text(f"{os.getpid()} {other.pid}")
    part.replace(pids)
    time.sleep(600)


NO_FUNCTION = 3
