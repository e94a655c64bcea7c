"""This instant of a device: a table that adds up to the allocator's bytes in use.

In: an `Instant`: the allocator's figures, the live arrays with their lines and addresses, the
loaded programs. Out: `Now`: arrays by line and shape, what chunks waste, what is left, and what
each program would ask for. An array has the bytes of its elements; the allocator counts chunks,
which are multiples of 256 bytes and are not split when less than 128 MiB and less than the request
would be left. Where addresses are known, the room between arrays bounds what that can waste.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hlomem.dump.records import Record
from hlomem.job.bfc import GRAIN, rounded
from hlomem.job.owner_rows import OwnerRow, merge_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WORTH_SPLITTING = 128 << 20


class LiveArray(Record, frozen=True, kw_only=True):
    """An array that Python holds."""

    size: int
    """Bytes of its elements on this device."""
    shape: str
    line: str = ""
    origin: str = "array"
    """`result of a program` or `array from the host`, where that is known."""
    address: int | None = None


class LoadedProgram(Record, frozen=True, kw_only=True):
    """A program that can be run without a compile."""

    name: str
    temporaries: int
    results: int
    """Bytes of results that take no argument's memory."""
    arguments: int = 0
    code: int = 0

    @property
    def asks(self) -> int:
        """Bytes a run asks the allocator for."""
        return self.temporaries + self.results


class Figures(Record, frozen=True, kw_only=True):
    """The figures a platform keeps of a device; each is None where it keeps none."""

    device: str
    in_use: int | None = None
    limit: int | None = None
    peak: int | None = None
    pool: int | None = None


class Instant(Figures, frozen=True, kw_only=True):
    """The knowledge a process has of a device."""

    arrays: tuple[LiveArray, ...]
    programs: tuple[LoadedProgram, ...] = ()
    largest_free: int | None = None
    grows: bool | None = None
    """Whether the pool is taken piece by piece; None where it is not known."""


class NowProgram(LoadedProgram, frozen=True, kw_only=True):
    """A loaded program and whether it would run now."""

    count: int
    """Programs of this name that ask for as much."""
    fits: bool | None
    """None where that cannot be told."""


class Now(Figures, frozen=True, kw_only=True):
    """The table."""

    largest_block: int | None
    """The largest block that could be had now, growth of the pool included."""
    free: int | None
    """Bytes of the limit that are not in use."""
    rows: tuple[OwnerRow, ...]
    """Arrays, the largest first."""
    arrays: int
    """Bytes of all arrays."""
    rounding: int
    """Bytes that rounding to 256 costs."""
    chunks: int
    """Bytes in chunks that were not split, at most."""
    other: int
    """Bytes in use that neither arrays nor their chunks explain."""
    programs: tuple[NowProgram, ...]
    notes: tuple[str, ...]

    @property
    def rest(self) -> list[OwnerRow]:
        """The bytes in use that are not arrays' own."""
        parts = (
            (self.rounding, "rounded up to 256 bytes"),
            (self.chunks, "in chunks the allocator did not split"),
            (self.other, "other"),
        )
        return [OwnerRow(size=size, owner=words) for size, words in parts if size]


def build_now(instant: Instant) -> Now:
    """The table of an instant; its parts add up to the bytes in use."""
    arrays = list(_distinct(instant.arrays))
    total = sum(array.size for array in arrays)
    held = sum(rounded(array.size) for array in arrays)
    rest = 0 if instant.in_use is None else instant.in_use - held
    chunks = max(0, min(rest, _most_waste(arrays)))
    block = _largest_block(instant)
    return Now(
        **{name: getattr(instant, name) for name in Figures.__struct_fields__},
        largest_block=block,
        free=_free(instant),
        rows=merge_rows(
            OwnerRow(size=one.size, owner=one.origin, name=one.shape, line=one.line)
            for one in arrays
        ),
        arrays=total,
        rounding=0 if instant.in_use is None else held - total,
        chunks=chunks,
        other=rest - chunks,
        programs=tuple(_programs(instant, block)),
        notes=tuple(_notes(instant, rest - chunks)),
    )


def is_of_pool(address: int) -> bool:
    """Whether an address can be a chunk's; an array whose run failed has any number for one."""
    return address > 0 and address % GRAIN == 0


def _distinct(arrays: Sequence[LiveArray]) -> Iterator[LiveArray]:
    """Arrays, those that share their memory once."""
    seen: set[int] = set()
    for array in arrays:
        if array.address is not None and array.size:
            if array.address in seen:
                continue
            seen.add(array.address)
        yield array


def _most_waste(arrays: Sequence[LiveArray]) -> int:
    """Bytes the chunks of arrays can hold beyond what was asked for."""
    placed = sorted((one for one in arrays if one.address and one.size), key=_address)
    waste = 0
    for number, array in enumerate(placed):
        needed = rounded(array.size)
        most = min(needed, _WORTH_SPLITTING) - GRAIN
        if number + 1 < len(placed):
            most = min(most, _address(placed[number + 1]) - _address(array) - needed)
        waste += max(0, most)
    unplaced = [one for one in arrays if not one.address and one.size]
    return waste + sum(min(rounded(one.size), _WORTH_SPLITTING) - GRAIN for one in unplaced)


def _address(array: LiveArray) -> int:
    return array.address or 0


def _free(instant: Instant) -> int | None:
    if instant.limit is None or instant.in_use is None:
        return None
    return instant.limit - instant.in_use


def _largest_block(instant: Instant) -> int | None:
    """The largest request that would be served."""
    if instant.limit is None or instant.in_use is None:
        return None
    if instant.pool is None or instant.largest_free is None:
        return None
    return max(instant.largest_free, instant.limit - instant.pool)


def _programs(instant: Instant, block: int | None) -> list[NowProgram]:
    rows = [
        NowProgram(
            **{name: getattr(program, name) for name in LoadedProgram.__struct_fields__},
            count=count,
            fits=fits(program.temporaries, program.results, _free(instant), block),
        )
        for program, count in Counter(instant.programs).items()
    ]
    return sorted(rows, key=lambda row: (-row.asks, row.name))


def fits(temporaries: int, results: int, free: int | None, block: int | None) -> bool | None:
    """Whether a program that asks for so much would run now; None where that is not certain.

    Temporaries are one block. Results come before them and may take the largest block apart.
    """
    if free is None or block is None:
        return None
    if temporaries + results > free or temporaries > block:
        return False
    return True if temporaries + results <= block else None


def _notes(instant: Instant, other: int) -> Iterator[str]:
    if instant.in_use is None:
        yield f"{instant.device} keeps no figures of its memory: only arrays are known"
    elif other > 0:
        yield (
            "other: temporaries of programs that run now, arrays that only they still read,"
            " results of a run that failed, which XLA does not give back, scratch memory of"
            " libraries, or arrays of another library in this process"
        )
    elif other < 0:
        yield "arrays have more bytes than are in use: some share memory, or are not on this device"
