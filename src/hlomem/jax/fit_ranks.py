"""Rows of `fit` next to one another: their operations, their prices, and the cheapest that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.jax.fit_cells import Cell
    from hlomem.report.data.fit import FitPlan, FitRow


def with_work(rows: Sequence[FitRow]) -> list[FitRow]:
    """Rows with their matrix products, in relation to the row with the fewest.

    As they were traced, else as compiled, on all devices of rows with as many.
    """
    planned = [row for row in rows if row.plans]
    if not planned:
        return list(rows)
    shared = set.intersection(*({plan.value for plan in row.plans} for row in planned))
    for value in sorted(shared):
        plans = {id(row): _plan_at(row, value) for row in planned}
        counts = {key: plan.flops for key, plan in plans.items()}
        if not all(counts.values()) and len({row.chips for row in planned}) == 1:
            counts = {key: plan.device_flops for key, plan in plans.items()}
        known = [count for count in counts.values() if count]
        if len(known) == len(planned):
            least = min(known)
            return [
                replace(row, work=(counts[id(row)] or 0) / least) if row.plans else row
                for row in rows
            ]
    return list(rows)


def _plan_at(row: FitRow, value: int) -> FitPlan:
    return next(plan for plan in row.plans if plan.value == value)


def with_cheapest(
    rows: Sequence[FitRow], cells: Sequence[Cell], prices: Mapping[str, float]
) -> list[FitRow]:
    """Rows with prices, and a mark on the one that costs the least of those that fit.

    By the price of an hour, or without prices by the number of chips; then by the modelled time for
    one unit of the value. Where all cost the same, none has the mark.
    """
    priced = [
        replace(row, price=prices[cell.target.chip] * cell.target.chip_count)
        if cell.target is not None and cell.target.chip in prices
        else row
        for row, cell in zip(rows, cells, strict=True)
    ]
    fitting = [row for row in priced if row.is_answered]
    has_prices = all(row.price is not None for row in fitting)
    costs = [_cost(row, has_prices=has_prices) for row in fitting]
    if len(priced) < 2 or not fitting or (len(fitting) > 1 and len(set(costs)) == 1):
        return priced
    cheapest = fitting[costs.index(min(costs))]
    return [replace(row, is_cheapest=True) if row is cheapest else row for row in priced]


def _cost(row: FitRow, *, has_prices: bool) -> tuple[float, float]:
    best = row.best
    assert best is not None
    seconds = float("inf") if best.seconds is None else best.seconds / max(best.value, 1)
    return (row.price or 0.0) if has_prices else float(row.chips), seconds
