"""Whole programs with a kernel inside: a scan over layers, next to what XLA fuses itself."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tools.programs.kernels.dense import matmul_call
from tools.programs.parts import halves


def layers(block: int = 256, width: int = 1024, depth: int = 4, rows: int = 1024) -> Any:
    """A stack of layers whose products are a kernel of ours; norms and activations are XLA's."""
    product = matmul_call(rows, width, width, block, block, block)

    def layer(x: Any, weights: Any) -> tuple[Any, None]:
        scaled = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
        return x + jax.nn.gelu(product(scaled, weights)), None

    def run(x: Any, weights: Any) -> Any:
        return jnp.sum(jax.lax.scan(layer, x, weights)[0] ** 2)

    return run, (
        halves(rows, width),
        halves(depth, width, width),
    )
