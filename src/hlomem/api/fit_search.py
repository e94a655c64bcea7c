"""The search for the largest size that fits: memory is linear while the program is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_PLANS = 8
_MAX_GROWTH = 256
"""Limit of a linear guess, relative to the largest size known to fit."""
_MAX_FORECAST = 1 << 16
"""The same for a forecast."""


class Planned(NamedTuple):
    size: int
    fits: bool


class Straddle(NamedTuple):
    """The values around the limit."""

    largest: int
    """Known to fit; 0 if none is."""
    refused: int | None
    """The smallest larger value that does not fit."""

    def is_closed(self, step: int) -> bool:
        """Whether they are neighbours."""
        return self.refused is not None and self.refused - self.largest <= step


def straddle(seen: Mapping[int, Planned]) -> Straddle:
    largest = max((value for value, plan in seen.items() if plan.fits), default=0)
    above = [value for value, plan in seen.items() if not plan.fits and value > largest]
    return Straddle(largest, min(above, default=None))


def next_value(
    seen: Mapping[int, Planned],
    limit: int,
    step: int,
    start: int = 0,
    forecast: Callable[[], int | None] = lambda: None,
) -> int | None:
    """The value to plan next, by `forecast` or a line; None if the search is complete."""
    first = max(start // step, 1) * step if start else (step if step > 1 else 2)
    if not seen:
        return first
    low, high = straddle(seen)
    if high is None and len(seen) == 1:
        return 2 * first
    if Straddle(low, high).is_closed(step):
        return None
    predicted = forecast()
    guess = (_guess(seen, limit) if predicted is None else predicted) // step * step
    if high is None:
        growth = _MAX_GROWTH if predicted is None else _MAX_FORECAST
        return min(max(guess, low + step), max(low, step) * growth)
    if guess <= low:  # predicted to be the largest: its neighbour must be shown not to fit
        guess = low + step
    return max(step, min(guess, high - step))


def _is_rising(seen: Mapping[int, Planned]) -> bool:
    """Whether larger values need more."""
    sizes = [seen[value].size for value in sorted(seen)]
    return sizes == sorted(sizes)


def _guess(seen: Mapping[int, Planned], limit: int) -> int:
    """The value at which a line through two plans meets the limit."""
    low, high = straddle(seen)
    if high is not None and low:
        ends = (low, high)
    elif low > min(seen) and not _is_rising(seen):  # the compiler tries harder near the limit
        ends = (min(seen), low)
    else:  # those nearest to the limit; a single one with the origin
        nearest = sorted(seen, key=lambda value: abs(seen[value].size - limit))[:2]
        ends = (min(nearest), max(nearest)) if len(nearest) > 1 else (0, nearest[0])
    left = seen[ends[0]].size if ends[0] in seen else 0
    rise = seen[ends[1]].size - left
    if rise <= 0 or not left <= limit:
        return (low + high) // 2 if high is not None else 2 * low
    return ends[0] + (limit - left) * (ends[1] - ends[0]) // rise
