"""A Keras model in training, and what its step needs: python examples/loops/keras_loop.py."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

import hlomem.jax

WIDTH, LAYERS, BATCH = 256, 3, 64


def train(steps=2):
    """A few steps on ones, by Keras' own loop, which compiles its `train_step`."""
    inputs = keras.Input((WIDTH,))
    x = inputs
    for _ in range(LAYERS):
        x = keras.layers.Dense(WIDTH, activation="gelu")(x)
    model = keras.Model(inputs, x)
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="mse")
    rows = np.ones((steps * BATCH, WIDTH), "float32")
    model.fit(rows, rows, batch_size=BATCH, verbose=0)


if __name__ == "__main__":
    with hlomem.jax.captured() as compiles:
        train()
    print(compiles["train_step"].explanation)
