"""Points of memory against operations, made by `hlomem.{api.front,jax.factory_front}`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec.structs import replace

from hlomem.dump.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

PointKind: TypeAlias = Literal["given", "ordered", "recomputed", "policy"]


class FrontPoint(Record, frozen=True, kw_only=True):
    name: str
    kind: PointKind
    """`given`: XLA's own program. `ordered`: in a better order. `recomputed`: with values
    rematerialized by hlomem. `policy`: with a policy of `jax.checkpoint`, as planned by XLA."""
    temporaries: int
    """Bytes, as planned."""
    total: int
    """Bytes of all allocations: arguments, results and constants as well."""
    flops: int
    """Operations in addition to `program_flops`, by our count."""
    program_flops: int
    time: int
    """Modelled time in addition to `program_time`, in bytes moved."""
    program_time: int
    on_front: bool = False
    """Whether no point is both cheaper and smaller."""
    is_chosen: bool = False
    """Whether it is the cheapest within the memory budget."""
    lines: tuple[str, ...] = ()
    """Lines of user code whose values are rematerialized, most bytes first."""
    kept: tuple[str, ...] = ()
    """Lines whose values are kept for the backward pass, most bytes first."""
    tensors: tuple[tuple[str, str], ...] = ()
    """MaxText's names of tensors that the program has, and `remat` or `device` for each."""
    code: str = ""
    """The call of `jax.checkpoint`, for a policy."""


class CodeAdvice(Record, frozen=True, kw_only=True):
    text: str
    code: str
    is_tried: bool
    """Whether XLA compiled it."""


def sort_front(points: Iterable[FrontPoint], limit: int | None = None) -> tuple[FrontPoint, ...]:
    """Points, cheapest first, with the front and the cheapest that fits marked."""
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
