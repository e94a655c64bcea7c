"""What a project's tests import."""

import jax

from project.steps import step


def shapes(batch):
    array = jax.ShapeDtypeStruct
    return (
        array((512, 512), "float32"),
        array((512, 512), "float32"),
        array((batch, 512), "float32"),
    )


def train_step(params, momentum, x):
    return step(params, momentum, x)


def train(steps):
    params = momentum = jax.numpy.ones((512, 512))
    for _ in range(steps):
        params, momentum = jax.jit(step)(params, momentum, jax.numpy.ones((64, 512)))
