"""The blocks of a Pallas kernel → a lower bound of the VMEM it uses, by part.

VMEM is tiled: a block's last dimension fills whole lanes, the one before it whole tiles. libtpu
keeps two copies of a block that moves with the grid, so that the next arrives while one is used,
and one copy of a block that stays. What a kernel's code needs on top of that, inner values that do
not fit registers above all, only libtpu tells.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias

from hlomem.dump.records import Record
from hlomem.hlo.padding import round_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LANES = 128
SUBLANES = 8
_WORD_BITS = 32

Role: TypeAlias = Literal["in", "out", "scratch"]


class Block(Record, frozen=True, kw_only=True):
    """The part of an operand or result that one step of the grid sees, or a scratch array."""

    role: Role
    name: str
    """`args[0]`, `outputs[0]`, `scratch[1]`."""
    dtype: str
    bits: int
    """Of one element."""
    shape: tuple[int, ...]
    array: tuple[int, ...] = ()
    """The whole array; empty for scratch."""
    space: str = "vmem"
    copies: int = 1
    """Copies that are certain: 2 if it moves with the grid, 0 if it need not be in memory."""

    @property
    def size(self) -> int:
        """Bytes of one copy, in whole tiles."""
        return padded_bytes(self.shape, self.bits)

    @property
    def total(self) -> int:
        return self.size * self.copies

    @property
    def label(self) -> str:
        return f"{self.name} {self.dtype}[{','.join(map(str, self.shape))}]"


class KernelFacts(Record, frozen=True, kw_only=True):
    """A kernel as it is known before it is compiled."""

    name: str
    line: str
    """`file:line` of its call; empty if not known."""
    grid: tuple[int, ...]
    """0 for a bound that is only known at run time."""
    blocks: tuple[Block, ...]
    own_limit: int | None = None
    """`vmem_limit_bytes` of its compiler parameters."""
    calls: int = 1
    """The number of places in the program that call it."""

    def in_vmem(self, *roles: Role) -> list[Block]:
        return [block for block in self.blocks if block.space == "vmem" and block.role in roles]

    @property
    def bound(self) -> int:
        """Bytes of VMEM that it uses at least."""
        return sum(block.total for block in self.blocks if block.space == "vmem")

    @property
    def smem_bound(self) -> int:
        """Bytes of SMEM that its blocks and scratch take at least."""
        words = (prod(block.shape) * block.bits for block in self.blocks if block.space == "smem")
        return sum(bits // 8 for bits in words)


def padded_bytes(shape: Sequence[int], bits: int) -> int:
    """Bytes of an array in VMEM, at least: its last two dimensions fill tiles.

    Fewer than eight rows fill a tile of the next power of two, and never less than a whole word.
    """
    if not shape:
        return _WORD_BITS // 8
    lanes = round_up(shape[-1], LANES)
    if len(shape) == 1:
        return lanes * bits // 8
    rows, packing = shape[-2], max(1, _WORD_BITS // bits)
    if rows < SUBLANES:
        rows = max(packing, 1 << max(0, rows - 1).bit_length())
    return prod(shape[:-2]) * round_up(rows, min(rows, SUBLANES) or 1) * lanes * bits // 8


class Part(Record, frozen=True, kw_only=True):
    name: str
    size: int


def parts_of(kernel: KernelFacts, used: int | None) -> tuple[Part, ...]:
    """The bytes of a kernel by part; with what libtpu says it uses they add up to that."""
    first = {role: sum(block.size for block in kernel.in_vmem(role)) for role in ("in", "out")}
    again = sum(block.total - block.size for block in kernel.in_vmem("in", "out"))
    parts = {
        "blocks in": first["in"],
        "blocks out": first["out"],
        "second buffers for pipelining": again,
        "scratch": sum(block.total for block in kernel.in_vmem("scratch")),
    }
    if used is not None:
        is_more = any(block.copies == 0 for block in kernel.in_vmem("scratch"))
        rest = "inner values, spills, other scratch" if is_more else "inner values and spills"
        parts[rest] = used - kernel.bound
    return tuple(Part(name=name, size=size) for name, size in parts.items() if size)


def is_within(small: Iterable[KernelFacts], large: Iterable[KernelFacts]) -> bool:
    """Whether every block of some kernels is no larger than that of the others, in order."""
    pairs = list(zip(small, large, strict=False))
    return all(_is_smaller(one.blocks, other.blocks) for one, other in pairs) and bool(pairs)


def _is_smaller(small: Sequence[Block], large: Sequence[Block]) -> bool:
    return len(small) == len(large) and all(
        one.bits == other.bits
        and one.copies <= other.copies
        and len(one.shape) == len(other.shape)
        and all(a <= b for a, b in zip(one.shape, other.shape, strict=True))
        for one, other in zip(small, large, strict=True)
    )
