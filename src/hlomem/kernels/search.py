"""The search for block sizes that fit, by as few compiles as monotony allows.

In: settings, each with its kernels and their limits. A setting whose lower bound is above a limit
does not fit. Of the others one is compiled at a time: if it fits, so does every setting none of
whose blocks is larger; if it does not, no setting fits none of whose blocks is smaller. A setting
may change more than blocks, as a number of stages does: a number that grows where blocks do not is
never taken for smaller, and what is no number has to be the same.
"""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from hlomem.kernels.blocks import KernelFacts, is_within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_COMPILES = 6
"""Compiled settings after which a search for the largest ends."""
_USUAL_RATIO = 1.2
"""The use of kernels by their lower bounds that is expected until one is compiled."""

How: TypeAlias = Literal["lower bound", "compiled", "larger blocks fit", "smaller blocks do not"]


class Limited(NamedTuple):
    """A kernel, and the bytes of VMEM it may use."""

    facts: KernelFacts
    limit: int
    has_bound: bool = True
    """Whether its blocks are certain to be in that memory."""

    @property
    def is_too_large(self) -> bool:
        return self.has_bound and self.facts.bound > self.limit


class Decision(NamedTuple):
    fits: bool
    how: How
    by: int
    """The setting that was compiled for it."""


class BlockSearch:
    """The settings of one chip."""

    def __init__(
        self, settings: Sequence[Sequence[Limited]], values: Sequence[Mapping[str, Any]]
    ) -> None:
        self._settings = settings
        self._values = values
        """The settings themselves, by name."""
        self._ratios: dict[int, float] = {}
        """Of compiled settings: what they use by their lower bounds."""
        self.compiled: list[int] = []
        self.decisions: dict[int, Decision] = {}
        self._failed = {number for number, kernels in enumerate(settings) if not kernels}
        for number, kernels in enumerate(settings):
            if any(kernel.is_too_large for kernel in kernels):
                self.decisions[number] = Decision(False, "lower bound", number)

    @property
    def largest(self) -> int | None:
        """The setting that fits and has the largest blocks; None if none is known to fit."""
        fitting = [number for number, decision in self.decisions.items() if decision.fits]
        return max(fitting, key=lambda number: (self._size(number), number), default=None)

    @property
    def is_proven(self) -> bool:
        """Whether no setting with larger blocks may fit."""
        return not self._larger()

    def next_setting(self, *, is_largest: bool) -> int | None:
        """The setting to compile next; None if all that was asked is decided."""
        if is_largest:
            left = self._larger() if len(self.compiled) < MAX_COMPILES else []
            likely = [number for number in left if self._fill(number) <= 1]
            if likely:
                return max(likely, key=lambda number: (self._size(number), number))
            return min(left, key=lambda number: (self._fill(number), number), default=None)
        return max(self._open(), key=self._worth, default=None)

    def note(self, number: int, used: Sequence[int | None]) -> bool:
        """Note what the kernels of a setting use, None for more than the chip has; does it fit?"""
        kernels = self._settings[number]
        fits = all(
            size is not None and size <= kernel.limit
            for size, kernel in zip(used, kernels, strict=True)
        )
        ratios = [
            size / kernel.facts.bound
            for size, kernel in zip(used, kernels, strict=True)
            if size and kernel.facts.bound
        ]
        if ratios:
            self._ratios[number] = max(ratios)
        self.compiled.append(number)
        self.decisions[number] = Decision(fits, "compiled", number)
        for other in self._open():
            if fits and self._is_within(other, number):
                self.decisions[other] = Decision(True, "larger blocks fit", number)
            elif not fits and self._is_within(number, other):
                self.decisions[other] = Decision(False, "smaller blocks do not", number)
        return fits

    def fail(self, number: int) -> None:
        """Note a setting that cannot be compiled for another reason."""
        self._failed.add(number)

    def _open(self) -> list[int]:
        known = self.decisions.keys() | self._failed
        return [number for number in range(len(self._settings)) if number not in known]

    def _larger(self) -> list[int]:
        """Undecided settings with larger blocks than the largest that fits."""
        best = self.largest
        size = -1 if best is None else self._size(best)
        return [number for number in self._open() if self._size(number) > size]

    def _size(self, number: int) -> int:
        return sum(kernel.facts.bound for kernel in self._settings[number])

    def _fill(self, number: int) -> float:
        """The part of its limit that the fullest kernel of a setting is expected to use."""
        nearest = min(self._ratios, key=lambda known: self._distance(number, known), default=None)
        ratio = _USUAL_RATIO if nearest is None else self._ratios[nearest]
        kernels = self._settings[number]
        return max(kernel.facts.bound * ratio / kernel.limit for kernel in kernels)

    def _distance(self, number: int, other: int) -> float:
        """How unlike the blocks of two settings are."""
        pairs = [
            (one.size, two.size)
            for left, right in zip(self._settings[number], self._settings[other], strict=False)
            for one, two in zip(left.facts.blocks, right.facts.blocks, strict=False)
        ]
        return sum(abs(log2(max(1, one) / max(1, two))) for one, two in pairs)

    def _worth(self, number: int) -> tuple[int, float, int]:
        """How many settings a compile decides if it ends as expected; the surest first."""
        left, fill = self._open(), self._fill(number)
        if fill <= 1:
            decided = sum(self._is_within(other, number) for other in left)
        else:
            decided = sum(self._is_within(number, other) for other in left)
        return decided, abs(1 - fill), -number

    def _is_within(self, small: int, large: int) -> bool:
        one, other = self._settings[small], self._settings[large]
        return (
            len(one) == len(other)
            and _is_below(self._values[small], self._values[large])
            and all(a.limit >= b.limit for a, b in zip(one, other, strict=True))
            and is_within([kernel.facts for kernel in one], [kernel.facts for kernel in other])
        )


def _is_below(small: Mapping[str, Any], large: Mapping[str, Any]) -> bool:
    """Whether no number of some settings is larger than that of others, and the rest is equal."""
    return all(
        value == large[name] or (type(value) is type(large[name]) is int and value < large[name])
        for name, value in small.items()
    )
