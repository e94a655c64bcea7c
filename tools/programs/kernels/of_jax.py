"""The kernels that JAX ships (jax.experimental.pallas.ops.tpu), called with block sizes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import flash_attention as flash
from jax.experimental.pallas.ops.tpu.matmul import matmul as shipped_matmul
from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm as shipped_gmm
from jax.experimental.pallas.ops.tpu.megablox.gmm import tgmm as shipped_tgmm
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention as shipped_pages
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from tools.programs.parts import floats, halves, numbers

_HEADS = 8


def flash_forward(block_q: int = 512, block_k: int = 1024, length: int = 4096) -> Any:
    sizes = flash.BlockSizes(
        block_q=block_q, block_k_major=block_k, block_k=min(block_k, 512), block_b=1
    )

    def run(q: Any, k: Any, v: Any) -> Any:
        return flash.flash_attention(q, k, v, causal=True, block_sizes=sizes)

    return run, (halves(1, _HEADS, length, 128),) * 3


def flash_backward(block: int = 512, length: int = 2048) -> Any:
    """Three kernels: forward with residuals, and the gradients of keys, values and queries."""
    sizes = flash.BlockSizes(
        block_q=block, block_k_major=block, block_k=block, block_b=1,
        block_q_major_dkv=block, block_k_major_dkv=block, block_k_dkv=block, block_q_dkv=block,
        block_k_major_dq=block, block_k_dq=block, block_q_dq=block,
    )  # fmt: skip

    def loss(q: Any, k: Any, v: Any) -> Any:
        made = flash.flash_attention(q, k, v, causal=True, block_sizes=sizes)
        return jnp.sum(made.astype(jnp.float32))

    return jax.grad(loss, argnums=(0, 1, 2)), (halves(1, _HEADS, length, 128),) * 3


def tpu_matmul(block: int = 512, block_k: int = 1024) -> Any:
    def run(x: Any, y: Any) -> Any:
        return shipped_matmul(x, y, block_shape=(block, block), block_k=block_k)

    return run, (halves(4096, 4096), halves(4096, 4096))


def gmm(tile_m: int = 512, tile_k: int = 1024, tile_n: int = 1024) -> Any:
    def run(x: Any, w: Any, sizes: Any) -> Any:
        return shipped_gmm(x, w, sizes, jnp.bfloat16, (tile_m, tile_k, tile_n))

    return run, (halves(4096, 2048), halves(8, 2048, 2048), numbers(8))


def tgmm(tile_m: int = 512, tile_k: int = 512, tile_n: int = 512) -> Any:
    def run(x: Any, y: Any, sizes: Any) -> Any:
        return shipped_tgmm(x, y, sizes, jnp.bfloat16, (tile_m, tile_k, tile_n))

    return run, (halves(2048, 4096), halves(4096, 2048), numbers(8))


def _splash(block_q: int, block_kv: int, length: int, *, is_fused: bool = False) -> Any:
    sizes = splash.BlockSizes(
        block_q=block_q, block_kv=block_kv, block_kv_compute=block_kv,
        block_q_dkv=block_q, block_kv_dkv=block_kv, block_kv_dkv_compute=block_kv,
        block_q_dq=None if is_fused else block_q, block_kv_dq=None if is_fused else block_kv,
        use_fused_bwd_kernel=is_fused,
    )  # fmt: skip
    mask = masks.MultiHeadMask([masks.CausalMask((length, length))] * _HEADS)
    return splash.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=sizes)


def splash_forward(block_q: int = 512, block_kv: int = 512, length: int = 2048) -> Any:
    kernel = _splash(block_q, block_kv, length)
    return kernel, (halves(_HEADS, length, 128),) * 3


def splash_backward(
    block_q: int = 512, block_kv: int = 512, length: int = 2048, fused: bool = False
) -> Any:
    kernel = _splash(block_q, block_kv, length, is_fused=fused)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return jnp.sum(kernel(q, k, v).astype(jnp.float32))

    return jax.grad(loss, argnums=(0, 1, 2)), (halves(_HEADS, length, 128),) * 3


def paged(pages_per_block: int = 8, page: int = 16) -> Any:
    def run(q: Any, k: Any, v: Any, lengths: Any, table: Any) -> Any:
        return shipped_pages(q, k, v, lengths, table, pages_per_compute_block=pages_per_block)

    cache = floats(8, 512, page, 128)
    return run, (floats(16, 32, 128), cache, cache, numbers(16), numbers(16, 64))
