"""Parses the out-of-memory messages of TPU, GPU and CPU from any log.

Messages come from libtpu (compile and run time), `BufferAssignment::ToVerboseString` of
xla/service/buffer_assignment.cc, tsl/framework/bfc_allocator.cc (`DumpMemoryLog`),
hlo_rematerialization.cc and the allocators' errors. Rounded sizes ("1.50G") are read as bytes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem.base.sizes import parse_printed_size
from hlomem.dump.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBER = r"-?\d{1,20}(?:\.\d{1,9})?"
_SIZE = rf"{_NUMBER}\s?(?:[KMGTPE]i?B?|B|bytes)?(?!\w|\.\d)"


class Failure(Record, frozen=True, kw_only=True):
    """One out-of-memory message; fields it does not tell are None or empty."""

    platform: str
    """`tpu`, `gpu` or `cpu`."""
    moment: str
    """`compile`, `run`, or `rematerialization` for the warning of that pass."""
    space: str = ""
    """The memory that was full: `hbm`, `vmem`, the name of an allocator."""
    needed: int | None = None
    """Bytes used in total, or requested at once."""
    available: int | None = None
    """The capacity, or the free bytes."""
    original: int | None = None
    """The bytes before rematerialization."""
    module: str | None = None
    subject: str | None = None
    """The allocation or instruction."""
    owner: str | None = None
    """The instruction that an allocation is of."""
    shape: str | None = None
    line: int
    """Its first line in the log."""
    count: int = 1
    """Its number of occurrences."""


class BreakdownPart(Record, frozen=True, kw_only=True):
    name: str
    size: int
    unpadded: int | None = None
    """Without padding, if known."""
    padded: int | None = None
    """With padding, without the holes between buffers, if known."""
    fragmentation: int | None = None
    """Bytes of those holes, if known."""


class Breakdown(Record, frozen=True, kw_only=True):
    """Sizes that add up to a total, according to a message."""

    name: str
    total: int | None
    parts: tuple[BreakdownPart, ...] = ()
    fragmentation: int | None = None
    """Bytes of holes between temporaries, if known."""


class NamedBuffer(Record, frozen=True, kw_only=True):
    size: int
    shape: str | None = None
    unpadded: int | None = None
    label: str | None = None
    """The XLA instruction, or its opcode."""
    metadata: str = ""
    """`metadata={op_name="…" source_file="…"}`, as in an instruction."""
    kind: str | None = None
    """`HLO temp`, `scoped`, `parameter`."""
    tag: str | None = None
    """The purpose of a kernel's allocation: `scratch operand`."""


class Holder(Record, frozen=True, kw_only=True):
    """Memory an allocator had handed out, by executable."""

    name: str
    size: int
    count: int


class Pool(Record, frozen=True, kw_only=True):
    """The state of an allocator when it failed."""

    limit: int | None = None
    in_use: int | None = None
    most_in_use: int | None = None
    largest_free: int | None = None
    holders: tuple[Holder, ...] = ()


class OomLog(Record, frozen=True, kw_only=True):
    name: str
    failures: tuple[Failure, ...] = ()
    breakdowns: tuple[Breakdown, ...] = ()
    buffers: tuple[NamedBuffer, ...] = ()
    pool: Pool | None = None
    is_tuner: bool = False
    """Whether it was the autotuner that asked, and no program or array before it."""
    occupancy: float | None = None
    """The share of the pool in use, as the allocator's bar draws it; None without one."""
    place: str = ""
    """The user's line in the traceback that ends the log; empty without one."""


class _Line(NamedTuple):
    number: int
    text: str


_LOG_PREFIX = re.compile(r"^.{0,200}?(?:\w\.(?:cc|h):\d+\] |\(\w+ pid=\d+[^)]{0,99}\) ?)")
"""The prefix of log lines: `W1115 11:10:33.1 1743 bfc_allocator.cc:371] `."""
_ESCAPES = re.compile(r"\x1b\[[\d;]*m")


def read_oom(text: str, name: str = "<string>") -> OomLog:
    lines = [
        _Line(number, _LOG_PREFIX.sub("", _ESCAPES.sub("", line)).rstrip("\r"))
        for number, line in enumerate(text.split("\n"), 1)
    ]
    return OomLog(
        name=name,
        failures=tuple(_merge(_failures(lines))),
        breakdowns=tuple(_breakdowns(lines)),
        buffers=tuple(_buffers(lines)),
        pool=_pool(lines),
        is_tuner=_is_tuner(lines),
        occupancy=_occupancy(lines),
        place=_place(lines),
    )


# Circumstances

_TUNER = ("All configs failed during profiling", "/redzone_allocator.cc", "/redzone_buffers.cc")
_REFUSED = re.compile(r"ran out of memory trying to allocate .{1,40}\(rounded to \d+\)")
_BAR = re.compile(r"^[*_x]{100}$")
_FRAME = re.compile(r'^ {2}File "([^"\n]{1,400})", line (\d{1,9}), in ')
_LIBRARY = re.compile(r"(?:^|[/\\])(?:site-packages|dist-packages|jax|jaxlib)[/\\]|^<frozen ")


def _is_tuner(lines: list[_Line]) -> bool:
    """Whether the autotuner's request is the first that failed.

    A request that was refused after the allocator's retries came from an array or a program; the
    autotuner's own are tried once.
    """
    for _, text in lines:
        if _REFUSED.search(text):
            return False
        if any(mark in text for mark in _TUNER):
            return True
    return False


def _occupancy(lines: list[_Line]) -> float | None:
    """The share of the allocator's last bar that is in use (bfc_allocator.cc, RenderOccupancy)."""
    bars = [text for _, text in lines if _BAR.match(text)]
    return bars[-1].count("*") / len(bars[-1]) if bars else None


def _place(lines: list[_Line]) -> str:
    """The innermost line of a traceback outside of libraries; of several the last traceback's."""
    found = ""
    for _, text in lines:
        frame = _FRAME.match(text)
        if frame is not None and not _LIBRARY.search(frame[1]):
            found = f"{frame[1]}:{frame[2]}"
    return found


# Failures


class _Message(NamedTuple):
    pattern: re.Pattern[str]
    known: dict[str, str]
    """Implied facts: the platform, the moment, the memory space."""


def _message(platform: str, moment: str, *pattern: str, space: str = "") -> _Message:
    known = {"platform": platform, "moment": moment, "space": space}
    return _Message(re.compile("".join(pattern)), known)


_MESSAGES = (
    _message(
        "tpu",
        "compile",
        r"Ran out of memory in memory space (?P<space>\w+)\. ",
        rf"Used (?P<needed>{_SIZE}) of (?P<available>{_SIZE})",
    ),
    _message(
        "tpu",
        "compile",
        r"Ran out of memory in memory space (?P<space>\w+) while allocating on stack for ",
        rf"(?P<subject>.*?)(?:\. Scoped allocation with size (?P<needed>{_SIZE}) and limit ",
        rf"(?P<available>{_SIZE}).*)?$",
    ),
    _message(
        "tpu",
        "compile",
        r"Ran out of memory on (?P<space>\w+), the total memory required for HLO temporaries ",
        rf"\((?P<needed>{_SIZE})\) exceeds available \w+ \((?P<available>{_SIZE})\)",
        r"(?:\. HLO module: (?P<module>[^\s.]+))?",
    ),
    _message(
        "tpu",
        "compile",
        r"Allocation \(size=(?P<needed>\d+)\) would exceed memory \(size=(?P<available>\d+)\)",
        r"(?: :: #allocation\d+ \[shape = '(?P<shape>[^']*)', space=(?P<space>\w+)",
        r"(?:.*?tag = '(?P<subject>[^']*)')?(?:.*?\] :: (?P<owner>[\w.-]+))?)?",
    ),
    _message(
        "tpu",
        "compile",
        rf"TensorCore Hbm usage: (?P<needed>{_SIZE}), SparseCore Hbm usage:? ",
        rf"(?P<more>{_SIZE}), exceeding available bytes: (?P<available>{_SIZE})",
        space="hbm",
    ),
    _message(
        "tpu",
        "run",
        rf"Attempting to (?:allocate|reserve) (?P<needed>{_SIZE})",
        r"(?: at the bottom of memory)?\. That was not possible\. ",
        rf"There are (?P<available>{_SIZE}) free",
        space="hbm",
    ),
    _message(
        "gpu",
        "run",
        rf"Out of memory while trying to allocate (?P<needed>{_SIZE})",
        r"(?: with allocator (?P<space>\w+))?(?:.*?\[executable_name='(?P<module>[^']*)'\])?",
    ),
    _message(
        "gpu",
        "run",
        rf"Failed to allocate request for {_SIZE} \((?P<needed>\d+B)\) on device ordinal",
    ),
    _message(
        "gpu",
        "run",
        r"Allocator \((?P<space>\w+)\) ran out of memory trying to allocate ",
        rf"(?P<needed>{_SIZE})(?!.*The caller indicates that this is not a failure)",
    ),
    _message(
        "gpu",
        "compile",
        r"Shared memory size limit exceeded: requested (?P<needed>\d+), ",
        r"available: (?P<available>\d+)",
        space="shared memory",
    ),
    _message("cpu", "run", r"Out of memory allocating (?P<needed>\d+) bytes"),
    _message(
        "",
        "rematerialization",
        r"Can't reduce memory use below [^(]*\((?P<available>\d+ bytes)\) by ",
        r"rematerialization; only reduced to [^(]*\((?P<needed>\d+ bytes)\)",
        r"(?:, down from [^(]*\((?P<original>\d+ bytes)\))?",
    ),
)
_SIZES = ("needed", "available", "original")


def _failures(lines: list[_Line]) -> Iterator[Failure]:
    for number, text in lines:
        if "emory" not in text and "llocat" not in text and "Hbm" not in text:
            continue
        for pattern, known in _MESSAGES:
            if (found := pattern.search(text)) is not None:
                said = {key: value for key, value in found.groupdict().items() if value}
                yield _failure(number, known | said)
                break


def _failure(line: int, said: dict[str, str]) -> Failure:
    sizes = {key: parse_printed_size(said.pop(key)) for key in _SIZES if key in said}
    if "more" in said:  # two cores share one memory
        sizes["needed"] += parse_printed_size(said.pop("more"))
    said["space"] = said["space"].replace("HBM", "hbm")
    return Failure(**said, **sizes, line=line)  # type: ignore[arg-type]


def _merge(failures: Iterator[Failure]) -> Iterator[Failure]:
    """Each message once, with its count: threads and devices repeat it."""
    first: dict[Failure, Failure] = {}
    counts: dict[Failure, int] = {}
    for failure in failures:
        key = replace(failure, line=0)
        first.setdefault(key, failure)
        counts[key] = counts.get(key, 0) + 1
    for key, failure in first.items():
        yield replace(failure, count=counts[key])


_HEADS = (
    (re.compile(rf"Total (\w+) usage >= ({_SIZE}):"), "{} in all"),
    (re.compile(rf"Program (\w+) requirement ({_SIZE}):"), "the program's {}"),
    (re.compile(r"(BufferAssignment) stats:()"), "the program"),
)
_PART = re.compile(rf"\s+([A-Za-z][\w /()-]{{0,80}}?):?\s+({_SIZE}|unknown size)(.*)$")
_UNPADDED = re.compile(rf"Unpadded \(({_SIZE})\)")
_PADDED = re.compile(rf" Padded \(({_SIZE})\)")
_FRAGMENTED = re.compile(rf"% fragmentation \(({_SIZE})\)")
_TOTALS = frozenset({"total allocation", "total fragmentation", "preallocated temp fragmentation"})
_HOLES = ("preallocated temp fragmentation", "total fragmentation")


def _breakdowns(lines: list[_Line]) -> Iterator[Breakdown]:
    for index, (_, text) in enumerate(lines):
        for head, name in _HEADS:
            if (found := head.search(text)) is not None:
                parts = list(_parts(lines[index + 1 :]))
                yield _breakdown(name.format(found[1]), found[2], parts)


def _breakdown(name: str, total: str, parts: list[BreakdownPart]) -> Breakdown:
    """A breakdown with its total in the heading or among its parts."""
    stated = [part.size for part in parts if part.name == "total allocation"]
    if total:
        stated = [parse_printed_size(total)]
    return Breakdown(
        name=name,
        total=stated[0] if stated else None,
        parts=tuple(part for part in parts if part.name not in _TOTALS),
        fragmentation=next(_holes(parts), None),
    )


def _holes(parts: list[BreakdownPart]) -> Iterator[int]:
    for part in parts:
        if part.name in _HOLES:
            yield part.size
        elif part.fragmentation is not None:
            yield part.fragmentation


def _parts(lines: list[_Line]) -> Iterator[BreakdownPart]:
    for _, text in lines:
        found = _PART.match(text)
        if found is None:
            return
        if found[2] != "unknown size":
            yield BreakdownPart(
                name=found[1],
                size=parse_printed_size(found[2]),
                unpadded=_size_in(_UNPADDED, found[3]),
                padded=_size_in(_PADDED, found[3]),
                fragmentation=_size_in(_FRAGMENTED, found[3]),
            )


def _size_in(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return parse_printed_size(found[1]) if found else None


_STARTS = re.compile(rf"^\s*(?:\d+\. Size: ({_SIZE})|Buffer \d+:)\s*$")
_FIELD = re.compile(
    rf"^\s*(?:(Size|Unpadded size): ({_SIZE})\s*$|"
    r"(Operator|Shape|Tag|XLA [Ll]abel|Allocation type|Entry Parameter Subshape): (.*))"
)


def _buffers(lines: list[_Line]) -> Iterator[NamedBuffer]:
    """The first list of buffers; later ones are of other devices or attempts."""
    said: dict[str, str] | None = None
    seen = 0
    for _, line in lines:
        if (start := _STARTS.match(line)) is not None:
            number = int(re.findall(r"\d+", line)[0])
            if number <= seen:
                return
            seen = number
            said = {"Size": start[1]} if start[1] else {}
        elif said is not None and (field := _FIELD.match(line)) is not None:
            name, text = field[1] or field[3], field[2] or field[4]
            said[name.replace("XLA L", "XLA l")] = text.rstrip()
        elif said is not None and "=====" in line:
            if "Size" in said:
                yield _buffer(said)
            said = None


def _buffer(said: dict[str, str]) -> NamedBuffer:
    unpadded = said.get("Unpadded size")
    parameter = said.get("Entry Parameter Subshape")
    return NamedBuffer(
        size=parse_printed_size(said["Size"]),
        shape=parameter or said.get("Shape"),
        unpadded=None if unpadded is None else parse_printed_size(unpadded),
        label=said.get("XLA label"),
        metadata=f"metadata={{{said['Operator']}}}" if "Operator" in said else "",
        kind="parameter" if parameter else said.get("Allocation type"),
        tag=said.get("Tag"),
    )


_STATS: dict[str, str] = {
    "Limit": "limit",
    "InUse": "in_use",
    "MaxInUse": "most_in_use",
    "LargestFreeBlock": "largest_free",
}
_STAT = re.compile(rf"^(\w+):\s+({_SIZE})\s*$")
_SUM = re.compile(rf"Sum Total of in-use chunks: ({_SIZE})")
_LARGEST = re.compile(rf"largest free chunk usable by \w+ end ({_SIZE})")
_CHUNK = re.compile(r"^InUse at \w+ (?:next \d+ )?of size (\d+)(?:.*?executable=([^},\s]+))?")


def _pool(lines: list[_Line]) -> Pool | None:
    """The allocator's state in the last dump of the log."""
    said: dict[str, int] = {}
    holders: dict[str, list[int]] = {}
    for _, text in lines:
        if "BFCAllocator dump for" in text:
            said, holders = {}, {}
        elif (stat := _STAT.match(text)) is not None and stat[1] in _STATS:
            said[_STATS[stat[1]]] = parse_printed_size(stat[2])
        elif (chunk := _CHUNK.match(text)) is not None:
            holders.setdefault(chunk[2] or "", []).append(int(chunk[1]))
        elif (found := _SUM.search(text)) is not None:
            said.setdefault("in_use", parse_printed_size(found[1]))
        elif (found := _LARGEST.search(text)) is not None:
            said["largest_free"] = parse_printed_size(found[1])
    held = [Holder(name=n, size=sum(s), count=len(s)) for n, s in holders.items()]
    held.sort(key=lambda holder: (-holder.size, holder.name))
    return Pool(**said, holders=tuple(held)) if said or held else None
