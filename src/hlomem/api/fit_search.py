"""The choice of the size to plan next, on the way to the largest that fits.

In: the sizes planned so far, and what there is. Out: another one, or None when two neighbours
straddle the limit. Memory grows in a line as long as the compiler makes the same program of it, and
near the limit it does not; so the line is a guess, and only a plan counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_PLANS = 6
"""Plans of a row."""
_MAX_GROWTH = 256
"""How many times as large as the largest known to fit a guess by a line may be."""
_MAX_FORETOLD = 1 << 16
"""The same for one that was foretold."""


class Planned(NamedTuple):
    """A size that has been planned, with its verdict."""

    size: int
    fits: bool


class Straddle(NamedTuple):
    """The sizes at the limit."""

    largest: int
    """Known to fit; 0 where none is."""
    refused: int | None
    """The smallest above it that does not."""

    def is_closed(self, step: int) -> bool:
        """Whether nothing lies between them."""
        return self.refused is not None and self.refused - self.largest <= step


def straddle(seen: Mapping[int, Planned]) -> Straddle:
    """The largest value that fits, and the next that does not."""
    largest = max((value for value, plan in seen.items() if plan.fits), default=0)
    above = [value for value, plan in seen.items() if not plan.fits and value > largest]
    return Straddle(largest, min(above, default=None))


def next_value(
    seen: Mapping[int, Planned],
    limit: int,
    step: int,
    start: int = 0,
    foretell: Callable[[], int | None] = lambda: None,
) -> int | None:
    """The value to plan next; None when nothing is left to find out.

    `foretell` may know the largest that fits better than a line does.
    """
    first = max(start // step, 1) * step if start else (step if step > 1 else 2)
    if not seen:
        return first
    low, high = straddle(seen)
    if high is None and len(seen) == 1:
        return 2 * first
    if Straddle(low, high).is_closed(step):
        return None
    foretold = foretell()
    guess = (_guess(seen, limit) if foretold is None else foretold) // step * step
    if high is None:
        growth = _MAX_GROWTH if foretold is None else _MAX_FORETOLD
        return min(max(guess, low + step), max(low, step) * growth)
    if guess <= low:  # foretold to be the largest: its neighbour must be seen not to fit
        guess = low + step
    return max(step, min(guess, high - step))


def _guess(seen: Mapping[int, Planned], limit: int) -> int:
    """The size at which a line through two plans meets the limit."""
    low, high = straddle(seen)
    if high is not None and low:
        ends = (low, high)
    else:  # those nearest to the limit; one alone is a line through nothing
        nearest = sorted(seen, key=lambda value: abs(seen[value].size - limit))[:2]
        ends = (min(nearest), max(nearest)) if len(nearest) > 1 else (0, nearest[0])
    left = seen[ends[0]].size if ends[0] in seen else 0
    rise = seen[ends[1]].size - left
    if rise <= 0 or not left <= limit:
        return (low + high) // 2 if high is not None else 2 * low
    return ends[0] + (limit - left) * (ends[1] - ends[0]) // rise
