"""A plain function with `jax.jit`, and the function that makes its arguments.

    hlomem fit hlomem.stacks.jit:train_step --target cuda-h100:1 --set step=train.py:train_step \\
        --set arguments=train.py:make_arguments --max batch

`make_arguments` returns what the step is called with, and is called with all other settings; under
`jax.eval_shape`, so that nothing is allocated, and with the target's `devices` if it takes them.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from hlomem.base.errors import CommandError
from hlomem.jax.compile.factories import find_factory


def train_step(step: str, arguments: str, devices: Any, **settings: Any) -> Any:
    """The factory: the step as it is, jitted or not, with the shapes of its arguments."""
    run, make = find_factory(step), find_factory(arguments)
    if "devices" in inspect.signature(make).parameters:
        made = make(devices=devices, **settings)  # arrays that are sharded are shapes already
    else:
        made = import_module("jax").eval_shape(lambda: make(**settings))
    if not isinstance(made, tuple):
        raise CommandError("`arguments` names a function that returns a tuple")
    return run, made
