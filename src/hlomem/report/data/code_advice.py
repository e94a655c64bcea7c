"""Advice on source code: the cheapest policy of `jax.checkpoint` that fits, and lines to name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes, format_change
from hlomem.report.data.front import CodeAdvice, FrontPoint

if TYPE_CHECKING:
    from collections.abc import Sequence


def advise_code(points: Sequence[FrontPoint], limit: int | None) -> tuple[CodeAdvice, ...]:
    policies = [point for point in points if point.kind == "policy"]
    advice = []
    if policies and limit is not None:
        advice.append(_for_limit(policies, limit))
    elif policies:
        advice.append(_smallest(points, policies))
    named = _point_to_name(points)
    if named is None:
        return tuple(advice)
    return (*advice, _names(named), *([_maxtext(named)] if named.tensors else []))


def price_of(point: FrontPoint) -> str:
    """`+3.1% FLOPs, modelled time +0.8%`."""
    more = format_change(point.flops, point.program_flops)
    return f"{more} FLOPs, modelled time {format_change(point.time, point.program_time)}"


def describe_fit(points: Sequence[FrontPoint], limit: int) -> str:
    """The cheapest point within a memory budget, in words."""
    size = format_bytes(limit)
    chosen = next((point for point in points if point.is_chosen), None)
    if chosen is not None:
        needs = f"the cheapest that fits needs {format_bytes(chosen.total)}, {price_of(chosen)}"
        return f"{size} in all: {needs}: {chosen.name}"
    least = min(points, key=lambda point: point.total)
    missing = format_bytes(least.total - limit)
    return f"{size} in all: none fits; the smallest needs {missing} more: {least.name}"


def _for_limit(policies: Sequence[FrontPoint], limit: int) -> CodeAdvice:
    size = format_bytes(limit)
    fitting = [point for point in policies if point.total <= limit]
    if fitting:
        best = min(fitting, key=lambda point: (point.flops, point.total))
        needs = f"{format_bytes(best.total)} in all, {price_of(best)}"
        text = f"The cheapest policy of jax.checkpoint that fits {size}, as XLA plans it: {needs}:"
        return CodeAdvice(text=text, code=best.code, is_tried=True)
    best = min(policies, key=lambda point: (point.total, point.flops))
    missing = format_bytes(best.total - limit)
    text = (
        f"None of the {len(policies)} policies of jax.checkpoint that were tried fits {size};"
        f" the smallest, {best.name}, needs {missing} more, {price_of(best)}."
    )
    return CodeAdvice(text=text, code="", is_tried=True)


def _smallest(points: Sequence[FrontPoint], policies: Sequence[FrontPoint]) -> CodeAdvice:
    best = min(policies, key=lambda point: (point.temporaries, point.flops))
    given = next(point for point in points if point.kind == "given")
    if best.temporaries >= given.temporaries:
        text = f"None of the {len(policies)} policies of jax.checkpoint that were tried needs less"
        return CodeAdvice(text=f"{text} than the program as given.", code="", is_tried=True)
    ours = [
        point
        for point in points
        if point.kind in ("ordered", "recomputed") and point.temporaries <= best.temporaries
    ]
    ours_text = "hlomem found nothing as small"
    if ours:
        cheapest = min(ours, key=lambda point: point.flops)
        ours_text = f"hlomem's cheapest of that size: {price_of(cheapest)}"
    needs = f"{format_bytes(best.temporaries)} of temporaries, {price_of(best)}"
    text = f"The smallest by a policy of jax.checkpoint, as XLA plans it: {needs}; {ours_text}:"
    return CodeAdvice(text=text, code=best.code, is_tried=True)


def _point_to_name(points: Sequence[FrontPoint]) -> FrontPoint | None:
    """The point whose lines to name: the chosen one, else the cheapest with half the memory."""
    again = [point for point in points if point.kind == "recomputed" and point.lines]
    given = next(point for point in points if point.kind == "given")
    chosen = [point for point in again if point.is_chosen]
    halves = [point for point in again if 2 * point.temporaries <= given.temporaries]
    if chosen or halves:
        return min(chosen or halves, key=lambda point: (point.flops, point.temporaries))
    return min(again, key=lambda point: point.temporaries, default=None)


def _names(point: FrontPoint) -> CodeAdvice:
    lines = ", ".join(point.lines)
    text = f"`{point.name}` rematerializes the values of these lines: {lines}."
    if not point.kept:
        return CodeAdvice(text=text, code="", is_tried=False)
    text += (
        f" For the backward pass it keeps the values of: {', '.join(point.kept)}."
        " Naming these may have a similar effect in your own code; that was not tried:"
    )
    code = (
        "from jax.ad_checkpoint import checkpoint_name\n"
        f'y = checkpoint_name(y, "kept")  # at {point.kept[0].partition(" ")[0]} and the others\n'
        'policy = jax.checkpoint_policies.save_only_these_names("kept")\n'
        "f = jax.checkpoint(f, policy=policy)  # around a layer, or the whole loss"
    )
    return CodeAdvice(text=text, code=code, is_tried=False)


def _maxtext(point: FrontPoint) -> CodeAdvice:
    """The same choice by the names that MaxText gives its tensors."""
    settings = " ".join(f"{name}={where}" for name, where in point.tensors)
    text = (
        f"In MaxText, `{point.name}` is nearest to these settings, by the scopes of its layers;"
        " they were not tried:"
    )
    code = f"remat_policy=custom decoder_layer_input=device {settings}"
    return CodeAdvice(text=text, code=code, is_tried=False)
