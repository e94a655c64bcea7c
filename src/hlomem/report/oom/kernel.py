"""A kernel, or an operation of XLA's own, that needs more VMEM or SMEM than it may use.

libtpu's messages differ in what they tell: the size of a kernel's stack and its limit (E1001),
where the size may still grow; all of it, by allocation, where it exceeds the whole VMEM; or one
allocation that does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from hlomem.base.patterns import lazy_pattern
from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record
from hlomem.report.data.lines import Lines
from hlomem.report.screens.text import space_label
from hlomem.view.instruction_line import PrintedInstruction, parse_instruction_line
from hlomem.view.scoped import KERNEL_TARGET, LIMIT_FLAG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.oom.log import Failure, NamedBuffer, OomLog

SCRATCH_SPACES = frozenset({"vmem", "smem", "shared memory"})
PartKind: TypeAlias = Literal["block in", "block out", "scratch", "spills", "table", "other"]
_WINDOW = lazy_pattern(
    r"(input|output) window allocation for operator (?:input|output) (\d{1,4})"
    r"(?:\. The window shape is (\S{1,200}), while the full shape is (\S{1,200}?)\.)?"
)
_LEVELS = lazy_pattern(r"has (\d{1,2}) buffering level")
_TABLE = lazy_pattern(r"prefetched SMEM operand (\d{1,4})")
_SPILLS = "register allocator spill slots"
_OF_KERNEL = lazy_pattern(r" :: ([\w.-]{1,200})")
_MEBIBYTE = 1 << 20
_OF_KERNELS = frozenset({"block in", "block out", "scratch", "table"})
"""Parts that only Mosaic kernels have."""


class KernelPart(Record, frozen=True, kw_only=True):
    """One allocation of a kernel, as libtpu names it."""

    kind: PartKind
    size: int
    words: str
    """`input 0, bf16[512,512] of bf16[8192,8192], 2 buffers`"""


class KernelFailure(Record, frozen=True, kw_only=True):
    name: str
    """The instruction; empty if the message does not name it."""
    is_kernel: bool
    """Whether it is a Pallas or Mosaic kernel, not an operation of XLA's own."""
    opcode: str
    op_name: str
    source: str | None
    space: str
    needed: int | None
    limit: int | None
    is_whole_memory: bool
    """Whether all VMEM or SMEM of the chip is too little, whatever the limit."""
    is_least: bool
    """Whether more may be needed than the message says."""
    parts: tuple[KernelPart, ...]
    """Largest first."""


def read_kernel_failure(failure: Failure, log: OomLog) -> KernelFailure | None:
    """The kernel of a failure; None where device memory ran out, not a kernel's own."""
    if failure.space not in SCRATCH_SPACES:
        return None
    printed = _instruction(failure)
    parts = tuple(sorted(_parts(failure, log), key=lambda part: -part.size))
    origin = Lines(None).origin(printed.text) if printed else None
    is_stack = failure.subject is not None and printed is not None
    return KernelFailure(
        name=printed.name if printed else _owner(failure, log),
        is_kernel=_is_kernel(failure, log, printed) or any(p.kind in _OF_KERNELS for p in parts),
        opcode=printed.opcode if printed else "",
        op_name=(origin.op_name if origin else None) or _op_name(log),
        source=log.place or (origin.line if origin else None),
        space=failure.space,
        needed=failure.needed,
        limit=failure.available,
        is_whole_memory=not is_stack,
        is_least=is_stack or failure.owner is not None,
        parts=parts,
    )


def _instruction(failure: Failure) -> PrintedInstruction | None:
    text = (failure.subject or "").strip()
    return parse_instruction_line(text) if " = " in text else None


def _owner(failure: Failure, log: OomLog) -> str:
    """The instruction that allocations are of, where all are of one."""
    if failure.owner:
        return failure.owner
    found = {name for buffer in log.buffers if (name := _label_name(buffer))}
    return found.pop() if len(found) == 1 else ""


def _label_name(buffer: NamedBuffer) -> str:
    label = buffer.label or ""
    if _SPILLS in label:
        spilled = _OF_KERNEL.search(label)
        return spilled[1] if spilled else ""
    return label.partition(" = ")[0] if " = " in label else ""


def _is_kernel(failure: Failure, log: OomLog, printed: PrintedInstruction | None) -> bool:
    if printed is not None:
        return printed.target == KERNEL_TARGET
    texts = [buffer.label or "" for buffer in log.buffers] + [failure.subject or ""]
    return any(KERNEL_TARGET in text or _WINDOW.search(text) for text in texts) or any(
        "pallas_call" in buffer.metadata for buffer in log.buffers
    )


def _op_name(log: OomLog) -> str:
    found = (re.search(r'op_name="([^"]{1,400})"', buffer.metadata) for buffer in log.buffers)
    return next((match[1] for match in found if match), "")


def _parts(failure: Failure, log: OomLog) -> Iterator[KernelPart]:
    if failure.owner is not None and failure.needed is not None:
        yield _part(failure.subject or "", failure.shape or "", failure.needed)
    for buffer in log.buffers:
        if buffer.kind == "scoped":
            yield _part(buffer.tag or buffer.label or "", buffer.shape or "", buffer.size)


def _part(tag: str, shape: str, size: int) -> KernelPart:
    if (window := _WINDOW.search(tag)) is not None:
        kind: PartKind = "block in" if window[1] == "input" else "block out"
        block = f", {window[3]} of {window[4]}" if window[3] else ""
        levels = _LEVELS.search(tag)
        copies = f", {levels[1]} buffers" if levels and levels[1] != "1" else ""
        return KernelPart(kind=kind, size=size, words=f"{window[1]} {window[2]}{block}{copies}")
    if _SPILLS in tag:
        return KernelPart(kind="spills", size=size, words="values that did not fit registers")
    if (table := _TABLE.search(tag)) is not None:
        words = f"prefetched operand {table[1]}"
        return KernelPart(kind="table", size=size, words=words)
    if tag.startswith("scratch operand"):
        return KernelPart(kind="scratch", size=size, words=f"scratch {shape.partition('{')[0]}")
    return KernelPart(kind="other", size=size, words=tag.partition("\n")[0][:80] or shape)


# In words


def describe_kernel(kernel: KernelFailure) -> str:
    """The kernel, the bytes it needs, and the bytes it may use."""
    what = "kernel" if kernel.is_kernel else kernel.opcode or "a kernel or operation"
    name = f" {kernel.name}" if kernel.name else ""
    found = ", ".join(filter(None, (kernel.op_name, kernel.source)))
    where = f" ({found})" if found else ""
    least = " or more" if kernel.is_least else ""
    space = space_label(kernel.space)
    said = f"{what}{name}{where}"
    if kernel.needed is None or kernel.limit is None:
        return f"{said} needs more {space} than there is; the message does not say how much"
    whole = "the chip has" if kernel.is_whole_memory else "it may use"
    of = f"{format_bytes(kernel.needed)}{least} of {space}"
    return f"{said} needs {of}, {whole} {format_bytes(kernel.limit)}"


def kernel_findings(kernel: KernelFailure) -> Iterator[str]:
    """Sentences on what a message tells."""
    yield describe_kernel(kernel)
    if kernel.is_least and kernel.is_kernel and kernel.parts == ():
        yield (
            "the number counts its blocks and scratch, and spills if there were any by then;"
            " `hlomem kernel` compiles it alone and tells all of it, by part"
        )
    for part in kernel.parts[:4]:
        yield f"{format_bytes(part.size)}  {part.kind}: {part.words}"
    if any(part.kind == "spills" for part in kernel.parts):
        yield (
            "spill slots hold inner values that are larger than the registers: smaller blocks, or"
            " a loop over parts of a block inside the kernel, make them smaller"
        )
    if not kernel.is_kernel and kernel.name:
        yield f"{kernel.name} is an operation of XLA's own, so there is no block size to change"


class KernelStep(NamedTuple):
    text: str
    command: str = ""
    """A command, or a line of code."""


def steps_of_kernel(kernel: KernelFailure) -> Iterator[KernelStep]:
    if kernel.is_kernel or not kernel.name:
        yield _smaller_blocks(kernel)
    if kernel.space != "vmem" or kernel.is_whole_memory or kernel.needed is None:
        return
    limit = -(-kernel.needed // _MEBIBYTE) * _MEBIBYTE
    more = format_bytes(limit - (kernel.limit or 0))
    size = f"{'at least ' if kernel.is_least else ''}{format_bytes(limit)}"
    if kernel.is_kernel:
        text = f"or allow this kernel {size}: while it runs, {more} less of VMEM holds other values"
        code = f"compiler_params=pltpu.CompilerParams(vmem_limit_bytes={limit})"
        yield KernelStep(text, code)
    cost = f"{more} less of VMEM is left to memory-space assignment in the whole program"
    yield KernelStep(
        f"or raise the limit of all to {size}, if the chip has it: {cost}",
        f'LIBTPU_INIT_ARGS="--{LIMIT_FLAG}={limit // 1024}" python …',
    )


def _smaller_blocks(kernel: KernelFailure) -> KernelStep:
    if kernel.space not in {"vmem", "smem"}:
        return KernelStep(
            "smaller blocks, or fewer stages of the pipeline (num_stages), take less of it",
            "hlomem kernel FILE:FACTORY --target cuda-… --shrink",
        )
    largest = next((part for part in kernel.parts if part.kind != "spills"), None)
    if largest is not None and largest.kind == "table":
        size = format_bytes(largest.size)
        words = f"{largest.words} is a table in SMEM, {size}: give each call a part of it"
        return KernelStep(f"{words}, or keep it in VMEM or HBM")
    what = f"make {largest.words.partition(',')[0]} smaller first" if largest else "smaller blocks"
    return KernelStep(
        f"{what}; `--shrink` tells which setting of a factory to halve, and compiles it",
        "hlomem kernel FILE:FACTORY --target tpu-… --shrink",
    )
