"""Whole programs with a kernel inside: a scan over layers, next to what XLA fuses itself."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tools.programs.kernels.dense import matmul_call
from tools.programs.kernels.of_jax import flash_forward, gmm
from tools.programs.parts import halves, numbers


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


def training(width: int = 2048, depth: int = 2, rows: int = 8192) -> Any:
    """Gradients of plain layers, without a kernel."""

    def loss(weights: Any, x: Any) -> Any:
        for weight in weights:
            x = jax.nn.gelu(x @ weight)
        return jnp.sum(x.astype(jnp.float32) ** 2)

    return jax.grad(loss), ([halves(width, width)] * depth, halves(rows, width))


def attention_block(length: int = 4096, width: int = 1024) -> Any:
    """Flash attention between projections, and a feed-forward part."""
    attend, _ = flash_forward(length=length)

    def run(x: Any, into: Any, out: Any, up: Any, down: Any) -> Any:
        parts = (x @ into).reshape(length, 3, 8, width // 8).transpose(1, 2, 0, 3)[:, None]
        seen = attend(*parts)[0].transpose(1, 0, 2).reshape(length, width)
        x = x + seen @ out
        return x + jax.nn.gelu(x @ up) @ down

    return run, (
        halves(length, width),
        halves(width, 3 * width),
        halves(width, width),
        halves(width, 4 * width),
        halves(4 * width, width),
    )


def kernel_training(width: int = 2048, depth: int = 2, rows: int = 8192) -> Any:
    """Layers whose forward products are a kernel; XLA makes the backward ones."""
    product = matmul_call(rows, width, width, 512, 512, 512)

    @jax.custom_vjp
    def multiply(x: Any, weight: Any) -> Any:
        return product(x, weight)

    def forward(x: Any, weight: Any) -> Any:
        return product(x, weight), (x, weight)

    def backward(kept: Any, grown: Any) -> Any:
        x, weight = kept
        return grown @ weight.T, x.T @ grown

    multiply.defvjp(forward, backward)

    def loss(weights: Any, x: Any) -> Any:
        for weight in weights:
            x = jax.nn.silu(multiply(x, weight))
        return jnp.sum(x.astype(jnp.float32) ** 2)

    return jax.grad(loss), ([halves(width, width)] * depth, halves(rows, width))


def experts(rows: int = 4096, width: int = 2048) -> Any:
    """Grouped products of a mixture of experts, up and down."""
    grouped, _ = gmm()

    def run(x: Any, up: Any, down: Any, sizes: Any) -> Any:
        made = jax.nn.silu(grouped(x, up, sizes))
        return x + grouped(made, down, sizes)

    weights = halves(8, width, width)
    return run, (halves(rows, width), weights, weights, numbers(8))


def decoding(batch: int = 256, width: int = 2048, depth: int = 3) -> Any:
    """Few rows through many weights, as a server has them."""

    def run(x: Any, weights: Any) -> Any:
        for up, down in weights:
            x = x + jax.nn.gelu(x @ up) @ down
        return x

    pair = (halves(width, 2 * width), halves(2 * width, width))
    return run, (halves(batch, width), [pair] * depth)


def convolutions(batch: int = 32, channels: int = 128, depth: int = 2) -> Any:
    """A stack of convolutions, without a kernel."""

    def run(x: Any, weights: Any) -> Any:
        for weight in weights:
            x = jax.nn.relu(
                jax.lax.conv_general_dilated(
                    x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
            )
        return x

    return run, (halves(batch, 56, 56, channels), [halves(3, 3, channels, channels)] * depth)
