"""A training step of Flax NNX: modules and optimizers are made as shapes, and donated.

    hlomem fit hlomem.stacks.nnx:train_step --target tpu-v6e:4 --set step=train.py:train_step \\
        --set arguments=train.py:make_arguments --max batch

`make_arguments` returns what the step is called with, `(model, optimizer, batch)`, and is called
with all other settings; nothing of it is allocated. The step may be one of `nnx.jit`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hlomem.base.errors import CommandError
from hlomem.jax.compile.factories import find_factory
from hlomem.stacks.lowering import import_stack

_INSTALL = "pip install flax"


def train_step(step: str, arguments: str, **settings: Any) -> Any:
    """The factory: the step with the state of its modules as an argument and a result."""
    nnx = preload()
    run, make = find_factory(step), find_factory(arguments)
    made = nnx.eval_shape(lambda: make(**settings))
    if not isinstance(made, tuple):
        raise CommandError("`arguments` names a function that returns a tuple")
    held = [isinstance(argument, nnx.Module | nnx.Optimizer) for argument in made]
    graph, state = nnx.split(tuple(one for one, is_held in zip(made, held, strict=True) if is_held))
    arrays = tuple(one for one, is_held in zip(made, held, strict=True) if not is_held)

    def whole(state: Any, *arrays: Any) -> Any:
        modules = nnx.merge(graph, state)
        kinds = iter(modules), iter(arrays)
        result = run(*(next(kinds[not is_held]) for is_held in held))
        return nnx.state(modules), result

    return import_module("jax").jit(whole, donate_argnums=0), (state, *arrays)


def preload() -> Any:
    """Import Flax."""
    return import_stack("flax.nnx", "Flax", _INSTALL)
