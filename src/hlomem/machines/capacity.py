"""The memory of a device: a size (`16GiB`), or what the runtime of a chip (`v5e`) gives."""

from __future__ import annotations

from msgspec import Struct

from hlomem.base.errors import CommandError
from hlomem.base.sizes import parse_size
from hlomem.base.source import visible
from hlomem.machines.registry import CHIPS

_SMALLEST = 1 << 20
"""A smaller number without a unit is taken for a mistake."""


class Capacity(Struct, frozen=True, kw_only=True):
    size: int
    name: str = ""
    """The chip; empty if a size was given."""
    is_nominal: bool = False
    """Whether it is the data sheet's figure, part of which the runtime reserves."""
    note: str = ""

    @property
    def label(self) -> str:
        """The chip as a user reads it: `v5e`, `h100, nominal`."""
        return f"{self.name}, nominal" if self.is_nominal else self.name


def capacity_of(chip: str) -> Capacity | None:
    found = CHIPS.get(chip.strip().lower())
    if found is None:
        return None
    return Capacity(size=found.size, name=found.name, is_nominal=found.is_nominal, note=found.note)


def parse_capacity(text: str) -> Capacity:
    """`16GiB`, `16GB` (10⁹), `15.75G` (2³⁰, as XLA prints it), a number of bytes, or a chip."""
    if (of_chip := capacity_of(text)) is not None:
        return of_chip
    size = parse_size(text)
    if size is None:
        from difflib import get_close_matches  # noqa: PLC0415 - only for errors

        near = get_close_matches(text.strip().lower(), CHIPS, n=2, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        known = ", ".join(CHIPS)
        problem = f"not a capacity: `{visible(text)}`; give `16GiB` or a chip: {known}"
        raise CommandError(problem + hint)
    if size < _SMALLEST and text.strip().isdecimal():
        shown = visible(text.strip())
        raise CommandError(f"a capacity of `{shown}` is {size} bytes: give a unit, as in `16GiB`")
    return Capacity(size=size)
