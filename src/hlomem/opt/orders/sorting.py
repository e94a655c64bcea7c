"""The passes of sorts and Fourier transforms over what they are given, in bytes.

A sort goes over all as often as rows halve. CUB's goes by digits of keys: one row in some kernels
that take as long for few elements, each of several rows by one block of threads. XLA's own sorts
short rows by a network, whose steps wait for one another. A transform goes over all once for every
dimension; one back scales its result afterwards, and one to real numbers copies what it overwrites.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction
    from hlomem.opt.orders.speeds import Speeds

_SORTS_BY_DIGITS = "xla.gpu.ext.cub_sort"
_PASSES_BY_DIGITS = 8
"""Four digits of keys of 32 bits, each counted and moved: 7 to 13 passes by what they took."""
_AFTER = {"IFFT": 1, "IRFFT": 2}
"""Passes of transforms back beyond those of their dimensions."""


def passed_again(part: HloInstruction, given: int, made: int, speeds: Speeds | None) -> int:
    """Bytes that a sort or transform of so many moves beyond once, or takes as long as."""
    target = part.custom_call_target or ""
    if target.startswith(_SORTS_BY_DIGITS):
        return _by_digits(part, 2 * (_PASSES_BY_DIGITS - 1) * given, speeds)
    if part.opcode == "fft":
        return _by_dimensions(part, given + made, speeds)
    if part.opcode == "sort":
        return _by_network(part, made, speeds)
    return 0


def _by_dimensions(transform: HloInstruction, moved: int, speeds: Speeds | None) -> int:
    again = len(transform.integers("fft_length")) - 1
    if speeds is None or not speeds.is_measured:
        return again * moved
    again += _AFTER.get(transform.attributes.get("fft_type", ""), 0)
    return again * (moved + speeds.in_bytes(speeds.launch))


def _by_digits(call: HloInstruction, moved: int, speeds: Speeds | None) -> int:
    if speeds is None:
        return moved
    *rows, length = call.operands[0].shape.dimensions
    if not rows:
        return moved + speeds.in_bytes(speeds.sorts.start)
    return max(moved, speeds.in_bytes(speeds.sorts.element * length))


def _by_network(sort: HloInstruction, made: int, speeds: Speeds | None) -> int:
    [dimension] = sort.integers("dimensions")
    length = sort.operands[0].shape.dimensions[dimension]
    halvings = max(length - 1, 1).bit_length()
    moved = 2 * (halvings - 1) * made
    steps = halvings * (halvings + 1) // 2
    return moved if speeds is None else max(moved, speeds.in_bytes(speeds.sorts.step * steps))
