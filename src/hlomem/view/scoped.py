"""Scoped memory: what each kernel and fusion uses while it runs, of VMEM or of shared memory.

In: `*.after_codegen.txt` of a dump, in whose backend configs libtpu notes the memory that the code
it generated uses (`used_scoped_memory_configs`) and what a kernel asks for itself
(`scoped_memory_configs`, in Pallas `vmem_limit_bytes`). The limit of all others is a flag's. On
GPU: `*.thunk_sequence.txt`, in which XLA notes the shared memory of each kernel it launches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.patterns import lazy_pattern
from hlomem.dump.records import Record
from hlomem.view.instruction_line import PrintedInstruction, parse_instruction_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.base.source import Source
    from hlomem.dump.dump import Dump

LIMIT_FLAG = "xla_tpu_scoped_vmem_limit_kib"
KERNEL_TARGET = "tpu_custom_call"
_USED = '"used_scoped_memory_configs":[{'
_OWN = lazy_pattern(r'[{,]"scoped_memory_configs":\[(\{[^\[\]]{0,4000})\]')
_SPACE = lazy_pattern(r'"memory_space":"(\d{1,9})"')
_SIZE = lazy_pattern(r'"size":"(\d{1,18})"')
_LIMIT = lazy_pattern(rf"(?m)^{LIMIT_FLAG}: (-?\d{{1,18}})$")
_VERSION = lazy_pattern(r"\bversion: TPU_VERSION_(\w{1,40})")
_THUNK = lazy_pattern(
    r"(?m)^\s*\d+: k\w*Kernel \[[^\]\n]*\] (\S{1,400}) grid: .{0,200}"
    r"shared_memory: (\d{1,12}) bytes"
)
_SHARED_LIMIT = lazy_pattern(r"shared_memory_per_block_optin: (\d{1,12})")
SHARED = -1
"""The color of a GPU's shared memory, which XLA does not number."""
_VARIANT = lazy_pattern(r'\bvariant: "(\w{1,40})"')


class ScopedUse(Record, frozen=True, kw_only=True):
    instruction: str
    opcode: str
    kernel: str
    """A kernel's own name, where it has one; empty for fusions."""
    text: str
    """Its line without the backend config."""
    color: int
    """XLA's number of the memory space."""
    used: int
    """Bytes that its code uses while it runs."""
    limit: int | None
    """Bytes it may use, if noted: a kernel's own limit, next to which others note theirs."""


class ScopedRecords(Record, frozen=True, kw_only=True):
    uses: tuple[ScopedUse, ...]
    """In the order of the program; instructions that use nothing are left out."""
    limit: int | None
    """Bytes of VMEM that the flag gives each of them; None if it was not set, or is not known."""
    chip: str
    """libtpu's name of the chip: `VIPERFISH lite`; empty if not known."""


def read_scoped(dump: Dump) -> ScopedRecords | None:
    """The scoped memory in a dump; None without libtpu's file, or where it notes none."""
    if dump.open_codegen is None:
        return None
    texts = dump.open_codegen()
    if shared := tuple(iter_shared(texts.program)):
        most = _SHARED_LIMIT.search(texts.target)
        return ScopedRecords(uses=shared, limit=int(most[1]) if most else None, chip="")
    uses = tuple(iter_uses(texts.program))
    if not uses:
        return None
    limit = _LIMIT.search(texts.flags)
    given = int(limit[1]) if limit else -1
    return ScopedRecords(
        uses=uses, limit=given * 1024 if given > 0 else None, chip=_chip_in(texts.target)
    )


def _chip_in(target: str) -> str:
    version, variant = _VERSION.search(target), _VARIANT.search(target)
    return " ".join(found[1] for found in (version, variant) if found)


def iter_uses(source: Source) -> Iterator[ScopedUse]:
    """The uses noted in the text of `*.after_codegen.txt`."""
    text = source.text
    at = text.find(_USED)
    while at >= 0:
        end = text.find("\n", at)
        line = text[_start(text, at) : end if end >= 0 else len(text)].strip()
        found = parse_instruction_line(line)
        if found is not None:
            yield from _uses_of(found, line)
        at = text.find(_USED, end) if end >= 0 else -1


def iter_shared(source: Source) -> Iterator[ScopedUse]:
    """The kernels in the text of `*.thunk_sequence.txt` that use shared memory."""
    for name, size in _THUNK.findall(source.text):
        if int(size):
            yield ScopedUse(
                instruction=name,
                opcode="fusion" if "fusion" in name else "custom-call",
                kernel="" if "fusion" in name else name,
                text="",
                color=SHARED,
                used=int(size),
                limit=None,
            )


def _start(text: str, at: int) -> int:
    """The start of the instruction that an offset is in, which may have several lines."""
    return max(text.rfind(f"\n  {mark}", 0, at) for mark in ("%", "ROOT %")) + 1


def _uses_of(found: PrintedInstruction, line: str) -> Iterator[ScopedUse]:
    _, _, rest = line.partition(_USED)
    own = _OWN.search(line)
    limits = dict(_spaces(own[1])) if own else {}
    head = line.partition(", backend_config=")[0]
    for color, used in _spaces(rest.partition("]")[0]):
        if used:
            yield ScopedUse(
                instruction=found.name,
                opcode=found.opcode,
                kernel=_kernel_name(found),
                text=head,
                color=color,
                used=used,
                limit=limits.get(color),
            )


def _kernel_name(found: PrintedInstruction) -> str:
    """`flash_attention` of `jit(f)/…/flash_attention/pallas_call`, or the instruction's name."""
    if found.opcode != "custom-call" or found.target != KERNEL_TARGET:
        return ""
    scope, _, last = found.op_name.rpartition("/")
    own = scope.rpartition("/")[2] if last.startswith("pallas_call") else last
    is_name = bool(own) and "(" not in own
    return own if is_name else found.name


def _spaces(configs: str) -> Iterator[tuple[int, int]]:
    for config in configs.split("}"):
        space, size = _SPACE.search(config), _SIZE.search(config)
        if space and size:
            yield int(space[1]), int(size[1])
