"""A log of the pass in this process; programs from JAX's cache on disk are not listed."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from threading import Lock
from typing import Literal, NamedTuple, TypeAlias

from hlomem.base.sizes import format_bytes
from hlomem.report.screens.text import percent

logger = logging.getLogger("hlomem.jax")
MAX_OUTCOMES = 1000
"""The latest programs that are remembered."""
_MAX_SLOWER = 6
"""Programs that would take too long that it names."""
_WORTH_SAYING = 0.001
"""Smallest share of temporaries that makes a program an improved one in words."""
MAX_LINES = 2
"""Lines of the user's code that a report of one program names."""

Kind: TypeAlias = Literal["improved", "kept", "skipped", "failed"]


class Outcome(NamedTuple):
    """The outcome for one program."""

    program: str
    platform: str
    kind: Kind
    """`improved`: it needs less. `kept`: nothing was better. `skipped`: too small or too large
    to look at. `failed`: something went wrong, and XLA's order stayed."""
    before: int = 0
    """Bytes of temporaries in XLA's order, as planned; nothing where it was not planned."""
    after: int = 0
    """Bytes of temporaries in the program handed back, as planned."""
    ordered: int = 0
    """Bytes of temporaries in the order alone, as planned, without recomputation."""
    bound: int | None = None
    """Bytes that no order of the given instructions can do without; with recomputation a
    program may need less. None where it is not known."""
    reason: str = ""
    seconds: float = 0.0
    """CPU time of the thread that looked for it."""
    time_ratio: float = 1.0
    """The time of a run, divided by that of XLA's program, by the rough model of
    `hlomem.opt.orders.cost`: bytes moved, multiplications, recomputation, and transfers that are
    waited for."""
    total: int = 0
    """Bytes of all allocations of what was handed back, as planned, where a limit was named."""
    limit: int | None = None
    """Bytes that they may take; None without a memory budget."""
    clones: int = 0
    """Instructions outside of loops that are recomputed."""
    stacks: int = 0
    """Stacks of loops that are gone: what they held is recomputed in the loop that reads it."""
    pieces: int = 0
    """Regions that loops of their own compute in pieces."""
    flops: int = 0
    """Operations that are added, by our count."""
    program_flops: int = 0
    """Operations of the program as it was; nothing where none are recomputed."""
    moves: int = 0
    """Values that wait in the host's memory while they are not needed."""
    moved_bytes: int = 0
    """Their bytes, which go there and come back in every run."""
    again: tuple[str, ...] = ()
    """Lines of the user's code whose values are recomputed, those with most bytes first."""
    floor: int = 0
    """Bytes that all allocations take at least, whatever is recomputed, as planned: those of
    `hungriest` and of what is no temporary. Nothing where the program fits."""
    hungriest: str = ""
    """The instruction that needs most at once."""
    rounding: tuple[str, ...] = ()
    """Instructions computed in another kernel than before, so that last bits may differ; empty
    where every kernel rounds as it did, if the compiler leaves fusions as they are."""
    verdict: str = ""
    """As `hlomem improve` says: `at the bound`, `proven`, `open`; empty if a compiler was asked."""
    slower: tuple[tuple[int, float], ...] = ()
    """Smaller programs that were not taken, since they would take too long, the fastest first:
    bytes of all allocations, and how many times as long they take, as modelled."""

    @property
    def missing(self) -> int:
        """Bytes by which the program is larger than the limit; nothing where it fits."""
        return 0 if self.limit is None else max(self.total - self.limit, 0)

    def __str__(self) -> str:
        if self.kind == "improved":
            word = "improved" if self._is_worth_saying else "about as before"
            head = f"{self.program} ({self.platform}): {word}"
            saved = percent(self.before - self.after, self.before)
            sizes = f"{format_bytes(self.before)} → {format_bytes(self.after)}, -{saved}"
            is_again = self.clones or self.stacks or self.pieces
            has_price = self.time_ratio != 1 or is_again
            slower = f", modelled time {self.time_ratio - 1:+.1%}" if has_price else ""
            again = f", {self._again()}" if is_again else ""
            away = f", {self._away()}" if self.moves else ""
            bits = f", last bits may differ ({self.rounding[0]})" if self.rounding else ""
            rest = f"{again}{away}{slower}{bits}{self._fitness()}"
            return f"{head}, temporaries {sizes}{rest}, {self.seconds:.2f} s"
        head = f"{self.program} ({self.platform}): {self.kind}"
        return f"{head}{', ' if self.reason else ''}{self.reason}{self._fitness()}"

    @property
    def _is_worth_saying(self) -> bool:
        return self.before - self.after >= _WORTH_SAYING * self.before

    def _again(self) -> str:
        share = percent(self.flops, self.program_flops)
        parts = [f"{self.clones} instructions recomputed"] if self.clones else []
        parts += [f"{self.stacks} stacks of loops recomputed"] if self.stacks else []
        parts += [f"{_regions(self.pieces)} computed in pieces"] if self.pieces else []
        sign = "" if self.flops < 0 else "+"
        lines = f" ({', '.join(self.again[:MAX_LINES])})" if self.again else ""
        return f"{', '.join(parts)}{lines}, {sign}{share} FLOPs"

    def _away(self) -> str:
        values = "1 value" if self.moves == 1 else f"{self.moves} values"
        return f"{values} ({format_bytes(self.moved_bytes)}) offloaded to the host"

    def _fitness(self) -> str:
        """The verdict on a memory budget, if there is one and the program was planned."""
        if self.limit is None or not self.total:
            return ""
        sizes = f"{format_bytes(self.total)} of {format_bytes(self.limit)} in all"
        if self.missing:
            least = ""
            if self.limit < self.floor:
                size = format_bytes(self.floor)
                least = f"; recomputation cannot go below {size}, for {self.hungriest} alone"
            why = least or self._slower() or self._why()
            return f", {sizes}: {format_bytes(self.missing)} too much{why}"
        return f", {sizes}: fits"

    def _slower(self) -> str:
        """The programs that were refused for the time they would take."""
        parts = [f"{format_bytes(total)} for {ratio - 1:+.1%}" for total, ratio in self.slower]
        said = ", ".join(parts[:_MAX_SLOWER])
        return f"; more than max_slowdown allows: {said} modelled time" if parts else ""

    def _why(self) -> str:
        """Why a program is too large that was left as it is, but for its order."""
        if self.clones or self.stacks or self.pieces or self.moves:
            return ""
        order = f"no order does with less than {format_bytes(self.bound)}, " if self.bound else ""
        return f"; {order}no value whose recomputation would save memory was found"


def _regions(count: int) -> str:
    return "1 region" if count == 1 else f"{count} regions"


class Report(NamedTuple):
    """The pass's work so far."""

    outcomes: tuple[Outcome, ...]
    """The programs, in the order they were compiled."""

    @property
    def improved(self) -> tuple[Outcome, ...]:
        """Those that got another order."""
        return tuple(outcome for outcome in self.outcomes if outcome.kind == "improved")

    @property
    def saved(self) -> int:
        """Bytes less, all programs together."""
        return sum(outcome.before - outcome.after for outcome in self.improved)

    def __str__(self) -> str:
        if not self.outcomes:
            return "no program was compiled while hlomem.jax was on"
        small = [outcome for outcome in self.outcomes if outcome.kind == "skipped"]
        lines = [str(outcome) for outcome in self.outcomes if outcome.kind != "skipped"]
        lines += [f"{len(small)} skipped"] if small else []
        if len(self.improved) > 1:
            lines.append(f"{len(self.improved)} improved, {format_bytes(self.saved)} less in all")
        return "\n".join(lines)


_outcomes: deque[Outcome] = deque(maxlen=MAX_OUTCOMES)
_state = {"recorded": 0}
"""How many outcomes there have been, forgotten ones included."""
_lock = Lock()


def record(outcome: Outcome) -> None:
    """Remember what came of a program, and log it."""
    with _lock:
        _outcomes.append(outcome)
        _state["recorded"] += 1
    level = logging.WARNING if outcome.kind == "failed" else logging.INFO
    with suppress(Exception):  # of a user's handler: it would end the user's compile
        logger.log(level, "%s", outcome)


def report() -> Report:
    """The outcome for every program compiled since the process began, or since `forget`."""
    with _lock:
        return Report(tuple(_outcomes))


def recorded() -> int:
    """The number of outcomes so far."""
    return _state["recorded"]


def report_since(number: int) -> Report:
    """Those after that many, as far as they are remembered."""
    with _lock:
        count = min(_state["recorded"] - number, len(_outcomes))
        return Report(tuple(_outcomes)[len(_outcomes) - count :])


def forget() -> None:
    """Begin a new report."""
    with _lock:
        _outcomes.clear()
