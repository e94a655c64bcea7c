"""Memory against operations as data: points, and what comes near to them in a program's source.

Made by `hlomem.api.front` and `hlomem.jax.policies`; drawn by `front_text` and by the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec.structs import replace

from hlomem.dump.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

PointKind: TypeAlias = Literal["given", "ordered", "recomputed", "policy"]


class FrontPoint(Record, frozen=True, kw_only=True):
    """A program that computes the same, with more or less of it computed again."""

    name: str
    kind: PointKind
    """`given`: XLA's own program. `ordered`: in a better order. `recomputed`: values are computed
    again by hlomem. `policy`: by a policy of `jax.checkpoint`, as XLA plans it."""
    temporaries: int
    """Bytes, as planned."""
    total: int
    """Bytes of all allocations: arguments, results and constants as well."""
    flops: int
    """Operations more than in the program as given, by our count."""
    program_flops: int
    """Operations of the program as given."""
    time: int
    """Modelled time more than that of the program as given, in bytes moved."""
    program_time: int
    """Modelled time of the program as given."""
    on_front: bool = False
    """Whether every point that is as cheap needs more memory."""
    is_chosen: bool = False
    """Whether it is the cheapest of those that fit the limit."""
    lines: tuple[str, ...] = ()
    """Lines of the user's code whose values are computed again, those with most bytes first."""
    kept: tuple[str, ...] = ()
    """Lines whose values are kept for the backward pass, those with most bytes first."""
    code: str = ""
    """The call of `jax.checkpoint`, where it is a policy's."""


class CodeAdvice(Record, frozen=True, kw_only=True):
    """A change of the program's source."""

    text: str
    code: str
    """Lines to type; empty where nothing is to be changed."""
    is_tried: bool
    """Whether XLA compiled the program so."""


def sort_front(points: Iterable[FrontPoint], limit: int | None = None) -> tuple[FrontPoint, ...]:
    """Points, the cheapest first, those on the front and the cheapest that fits marked."""
    ordered = sorted(points, key=lambda point: (point.flops, point.temporaries))
    marked: list[FrontPoint] = []
    least: int | None = None
    fits = False
    for point in ordered:
        is_on = least is None or point.temporaries < least
        least = point.temporaries if is_on else least
        is_chosen = limit is not None and is_on and not fits and point.total <= limit
        fits = fits or is_chosen
        marked.append(replace(point, on_front=is_on, is_chosen=is_chosen))
    return tuple(marked)
