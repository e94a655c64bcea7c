"""VMEM of kernels at each setting, and the block sizes that fit, as libtpu measures them."""

from __future__ import annotations

from typing import Any

from msgspec import field

from hlomem.dump.records import Record
from hlomem.kernels.blocks import Block, KernelFacts, Part, parts_of


class KernelUse(Record, frozen=True, kw_only=True):
    """One kernel at one setting, on one chip."""

    name: str
    line: str
    grid: tuple[int, ...]
    calls: int
    blocks: tuple[Block, ...]
    limit: int
    """Bytes of VMEM it may use."""
    space: str = "vmem"
    """The memory in question: on a GPU `shared memory`."""
    is_own_limit: bool
    """Whether the kernel asks for that limit itself (`vmem_limit_bytes`)."""
    bound: int
    """Bytes it uses at least, by its blocks and scratch."""
    used: int | None = None
    """Bytes it uses by libtpu; None if it was not compiled, or needs more than the chip has."""
    smem: int | None = None
    """Bytes of SMEM it uses by libtpu; None if libtpu notes none."""
    parts: tuple[Part, ...] = ()
    """They add up to `used`, or else to `bound`."""
    said: str = ""
    """libtpu's message where it needs more than the chip has."""
    cpu_seconds: float = 0.0
    """0 if it was not compiled, or is known from before."""
    is_known: bool = False
    """Whether its number is from the cache."""


def kernel_use(facts: KernelFacts, limit: int, used: int | None = None, **more: Any) -> KernelUse:
    """The use of a kernel, with its parts."""
    return KernelUse(
        name=facts.name,
        line=facts.line,
        grid=facts.grid,
        calls=facts.calls,
        blocks=facts.blocks,
        limit=limit,
        is_own_limit=facts.own_limit is not None,
        bound=facts.bound,
        used=used,
        parts=parts_of(facts, used) if more.get("space", "vmem") == "vmem" else (),
        **more,
    )


class KernelRow(Record, frozen=True, kw_only=True):
    """One setting on one chip."""

    target: str
    settings: dict[str, Any]
    kernels: tuple[KernelUse, ...] = ()
    fits: bool | None = None
    """None if it is not known."""
    how: str = ""
    """`compiled`, `lower bound`, `larger blocks fit`, `smaller blocks do not`."""
    by: dict[str, Any] = field(default_factory=dict)
    """The setting that was compiled instead, where its answer follows from another's."""
    problem: str = ""
    """Why it could not be traced or compiled, other than for lack of memory."""

    @property
    def fullest(self) -> KernelUse | None:
        """The kernel nearest to its limit."""
        return max(
            self.kernels,
            key=lambda use: (use.used or use.bound) / max(1, use.limit),
            default=None,
        )


class LargestBlocks(Record, frozen=True, kw_only=True):
    target: str
    settings: dict[str, Any] | None
    """The largest blocks that fit; None if none of them does."""
    is_proven: bool
    """Whether all larger ones are known not to fit."""
    compiles: int


class KernelReport(Record, frozen=True, kw_only=True):
    subject: str
    """The factory or the function."""
    targets: tuple[str, ...]
    settings: dict[str, Any]
    over: dict[str, list[Any]]
    """Settings and their values, every combination of which is a row of each target."""
    rows: tuple[KernelRow, ...]
    largest: tuple[LargestBlocks, ...] = ()
    """For each target, where settings were given to choose from."""
    asked: dict[str, Any] = field(default_factory=dict)
    """The settings as they were, where they were halved until all kernels fit."""
    compiles: int = 0
    """Kernels that were compiled now."""
    cached: int = 0
    """Kernels whose numbers are from the cache."""
    cpu_seconds: float = 0.0
    """Of all of it."""
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        from hlomem.report.screens.kernels_text import draw_kernels  # noqa: PLC0415 - few print it
        from hlomem.report.screens.text import PIPED_WIDTH, plain  # noqa: PLC0415

        return plain(draw_kernels(self, PIPED_WIDTH)).rstrip("\n")
