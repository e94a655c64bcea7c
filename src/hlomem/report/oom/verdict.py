"""Why memory ran out: one of five verdicts, who holds what, and what to do.

In: a `Situation`: the request that failed and what is known of the pool then. Out: `Verdict`.

- `program`: the program alone is larger than the pool.
- `arrays`: arrays and program do not fit together.
- `autotuner`: the compiler tried kernels out, which needs more than the program's run may.
- `fragmented`: enough is free, but not in one piece, as arrays lie between.
- `regions`: enough is free, but in regions of a pool that grew piece by piece, which never merge.

XLA's own text suggests fragmentation in every case (bfc_allocator.cc, `AllocateRawInternal`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.dump.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.job.instant import LiveArray
    from hlomem.job.owner_rows import OwnerRow

Kind: TypeAlias = Literal["program", "arrays", "autotuner", "fragmented", "regions", "unknown"]
TOP_HOLDERS = 5
_DEFAULT_FRACTION, _MOST_FRACTION = 0.75, 0.95
_SMALL = 0.05
"""The share of a pool in use below which arrays are not what takes it apart."""
_WORTH_SAYING = 0.01
"""The least share of a pool that a sentence is about."""
_FULL = 0.5
"""The share of a pool in use from which on a log's bar says that arrays hold it."""
TITLES: dict[str, str] = {
    "program": "the program alone is too large",
    "arrays": "arrays and program do not fit together",
    "autotuner": "the autotuner found no room while compiling",
    "fragmented": "the pool is fragmented",
    "regions": "the regions of a pool that grows are too small",
    "unknown": "why memory ran out cannot be told from this",
}


class Remedy(Record, frozen=True):
    """Something to do, and the code for it."""

    text: str
    code: str = ""


class Situation(Record, frozen=True, kw_only=True):
    """A request that failed, and what is known of the memory then."""

    needed: int | None = None
    """Bytes that were asked for at once."""
    is_tuner: bool = False
    """Whether the autotuner asked."""
    program: str = ""
    """The program that asked, where it is known."""
    asks: int | None = None
    """Bytes a run of it asks for in all."""
    results: int = 0
    """Of those, bytes of results that take no argument's memory."""
    arguments: int | None = None
    limit: int | None = None
    in_use: int | None = None
    pool: int | None = None
    largest_free: int | None = None
    grows: bool | None = None
    occupancy: float | None = None
    """The share of the pool's bytes in use, as an allocator's log draws it."""
    rows: tuple[OwnerRow, ...] = ()
    """Live arrays by line, the largest first."""
    arrays: tuple[LiveArray, ...] = ()
    ownerless: int = 0
    """Bytes in use that no array holds."""
    fraction: float | None = None
    """The share of the device the pool may take, where it was set."""


class Verdict(Record, frozen=True, kw_only=True):
    """Why memory ran out."""

    kind: Kind
    title: str
    because: str
    """The figures that make it so."""
    holders: tuple[OwnerRow, ...]
    """The arrays that hold the memory, by line."""
    remedies: tuple[Remedy, ...]


def diagnose(situation: Situation) -> Verdict:
    """The verdict on a situation."""
    kind, because = _decide(situation)
    return Verdict(
        kind=kind,
        title=TITLES[kind],
        because=because,
        holders=situation.rows,
        remedies=tuple(_remedies(kind, situation)),
    )


# Which it is


def _decide(here: Situation) -> tuple[Kind, str]:
    needed = here.needed
    if here.is_tuner:
        return "autotuner", _about_tuner(here)
    if needed is None:
        return "unknown", "the message does not say how much was asked for"
    if here.limit is None:
        return _by_bar(here, needed)
    if needed > here.limit:
        times = needed / here.limit
        return "program", (
            f"{format_bytes(needed)} at once are {times:.1f} times the pool of"
            f" {format_bytes(here.limit)}; nothing that is dropped helps"
        )
    whole = (here.asks or 0) + (here.arguments or 0)
    if here.asks is not None and whole > here.limit:
        size, pool = format_bytes(whole), format_bytes(here.limit)
        return "program", f"{here.program} needs {size} with its arguments, and the pool has {pool}"
    if here.in_use is None:
        return "unknown", "how much was in use is not known"
    return _with_figures(here, needed, here.limit, here.in_use)


def _with_figures(here: Situation, needed: int, limit: int, in_use: int) -> tuple[Kind, str]:
    free = limit - in_use
    wanted = max(needed, here.asks or 0)
    figures = (
        f"{format_bytes(in_use)} of {format_bytes(limit)} are in use, {format_bytes(free)} free"
    )
    if here.ownerless > _WORTH_SAYING * limit:
        figures += (
            f" (at least {format_bytes(here.ownerless)} belong to no array: results of a run that"
            " failed, which XLA does not give back)"
        )
    if wanted > free:
        what = f"a run of {here.program} asks for" if here.asks == wanted else "asked for were"
        return "arrays", f"{figures}; {what} {format_bytes(wanted)}"
    block = f"; the largest block is {format_bytes(here.largest_free)}" if here.largest_free else ""
    if here.grows and in_use <= _SMALL * (here.pool or limit):
        left = limit - (here.pool or 0)
        return "regions", (
            f"{figures}, but in regions that never merge or go back{block}, and the pool can grow"
            f" by {format_bytes(left)} only; asked for were {format_bytes(needed)}"
        )
    return "fragmented", f"{figures}{block}; asked for were {format_bytes(needed)} in one piece"


def _by_bar(here: Situation, needed: int) -> tuple[Kind, str]:
    """The verdict a log's bar of used and free memory allows, without any figures."""
    asked = f"asked for were {format_bytes(needed)}"
    if here.occupancy is None:
        return "unknown", f"{asked}; the log has no figures of the pool"
    share = f"{here.occupancy:.0%} of the pool were in use"
    if here.occupancy >= _FULL:
        return "arrays", f"{share}; {asked}"
    if here.occupancy <= _SMALL:
        return "program", f"only {share}, so nothing else takes the room; {asked}"
    return "unknown", (
        f"{share}; {asked}: without the size of the pool it may be too large, or in pieces"
    )


def _about_tuner(here: Situation) -> str:
    asked = "memory" if here.needed is None else format_bytes(here.needed)
    words = f"not the program: trying kernels out needs copies of operands and results, {asked}"
    if here.limit is not None and here.in_use is not None:
        free = here.limit - here.in_use
        words += (
            f"; {format_bytes(here.in_use)} of {format_bytes(here.limit)} are in use,"
            f" {format_bytes(free)} free"
        )
    return words


# What to do


def _remedies(kind: Kind, here: Situation) -> Iterator[Remedy]:
    if kind == "program":
        yield Remedy("make the program smaller: its plan says what its memory is for")
        return
    if kind == "autotuner":
        flag, cache = "--xla_gpu_autotune_level=0", "JAX_COMPILATION_CACHE_DIR=~/.cache/jax"
        yield Remedy("compile without trying kernels out", f"XLA_FLAGS={flag} python …")
        text = "or compile once where there is room, and take programs from the cache"
        yield Remedy(text, f"{cache} python …")
        yield from _drop(here)
        yield Remedy("or compile before the arrays are made: jit(f).lower(…).compile()")
    elif kind == "arrays":
        yield from (*_drop(here), *_donate(here), *_larger_fraction(here, _short(here)))
    elif kind == "fragmented":
        yield from _clear_a_block(here)
        copy = "x = jax.device_put(jax.device_get(x))"
        yield Remedy("or copy the arrays once, which packs them", copy)
        grown = here.needed and here.pool and here.needed - ((here.limit or 0) - here.pool)
        yield from _larger_fraction(here, grown)
    elif kind == "regions":
        yield Remedy("take the pool at once", "XLA_PYTHON_CLIENT_PREALLOCATE=true python …")
        yield Remedy("or run the program that asks for most first, before smaller regions exist")
    if kind not in ("regions", "unknown") and not here.rows:
        hook = "hlomem.jax.install_excepthook()  # as the first line of the script"
        yield Remedy("see which arrays hold the memory, by line", hook)


def _short(here: Situation) -> int | None:
    """Bytes that are missing."""
    if here.limit is None or here.in_use is None or here.needed is None:
        return None
    return max(here.needed, here.asks or 0) - (here.limit - here.in_use)


def _drop(here: Situation) -> Iterator[Remedy]:
    short = _short(here)
    if short is None or short <= 0 or not here.rows:
        return
    largest = here.rows[0]
    count = -(-short // max(1, largest.size // largest.count))
    missing = f"{format_bytes(short)} are missing"
    if count > largest.count:
        yield Remedy(f"drop arrays of {format_bytes(short)} at least", "del x")
        return
    arrays = "array" if count == 1 else f"of the {largest.count} arrays"
    where = largest.line or "unknown origin"
    text = f"drop {count} {arrays} {largest.name} of {where}: {missing}"
    yield Remedy(text, "del x  # or x.delete()")


def _donate(here: Situation) -> Iterator[Remedy]:
    saved = min(here.results, here.arguments or 0)
    if here.program and saved > _WORTH_SAYING * (here.limit or 0):
        more = f"its results take {format_bytes(saved)} next to them"
        text = f"donate arguments of {here.program}: {more}"
        yield Remedy(text, "jax.jit(step, donate_argnums=(0,))")


def _larger_fraction(here: Situation, short: int | None) -> Iterator[Remedy]:
    if here.limit is None or short is None:
        return
    fraction = here.fraction or _DEFAULT_FRACTION
    wanted = fraction * (1 + max(short, 0) / here.limit) + 0.01
    if wanted <= _MOST_FRACTION:
        setting = f"XLA_PYTHON_CLIENT_MEM_FRACTION={wanted:.2f}"
        yield Remedy("or a larger share of the device for the pool", f"{setting} python …")


def _clear_a_block(here: Situation) -> Iterator[Remedy]:
    found = block_to_clear(here.arrays, here.needed or 0)
    if found is None:
        return
    lines = sorted({array.line for array in found if array.line})
    where = f" of {lines[0]}" if len(lines) == 1 else ""
    size, block = format_bytes(_bytes(found)), format_bytes(here.needed or 0)
    text = f"drop {len(found)} neighbouring arrays{where}, {size}: that clears a block of {block}"
    places = ", ".join(f"0x{array.address or 0:x}" for array in found[:4])
    yield Remedy(text, f"x.delete()  # {places}")


def block_to_clear(arrays: Sequence[LiveArray], needed: int) -> list[LiveArray] | None:
    """The neighbouring arrays of fewest bytes between which a block of a size lies."""
    placed = sorted((one for one in arrays if one.address), key=lambda one: one.address or 0)
    best: list[LiveArray] | None = None
    first = 0
    for last in range(2, len(placed)):
        while first + 2 < last and _room(placed[first + 1], placed[last]) >= needed:
            first += 1
        inside = placed[first + 1 : last]
        if _room(placed[first], placed[last]) >= needed and (
            best is None or _bytes(inside) < _bytes(best)
        ):
            best = inside
    return best


def _room(before: LiveArray, after: LiveArray) -> int:
    return (after.address or 0) - (before.address or 0) - before.size


def _bytes(arrays: Sequence[LiveArray]) -> int:
    return sum(array.size for array in arrays)


# In lines


def draw_verdict(verdict: Verdict) -> list[str]:
    """The lines; none where the verdict is that nothing can be told."""
    if verdict.kind == "unknown":
        return []
    return [
        visible(line)
        for line in (
            f"{verdict.title}: {verdict.because}",
            *_holders(verdict.holders),
            *_remedy_lines(verdict),
        )
    ]


def _holders(rows: tuple[OwnerRow, ...]) -> Iterator[str]:
    for row in rows[:TOP_HOLDERS]:
        times = f"{row.count} × " if row.count > 1 else ""
        yield f"  {format_bytes(row.size):>11}  {times}{row.name}  {row.line or 'line not known'}"
    if rest := rows[TOP_HOLDERS:]:
        count, size = sum(row.count for row in rest), sum(row.size for row in rest)
        yield f"  {format_bytes(size):>11}  {count} more arrays"


def _remedy_lines(verdict: Verdict) -> Iterator[str]:
    for remedy in verdict.remedies:
        yield f"  - {remedy.text}"
        if remedy.code:
            yield f"      {remedy.code}"
