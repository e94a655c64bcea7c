"""The memory of a device, given as a size or the name of a chip.

    16GiB  15.75G  v5e  h100

Of a chip it is what the runtime gives to programs, where that is known; else the nominal size of
one device as JAX counts them, which says so.
"""

from __future__ import annotations

from msgspec import Struct

from hlomem.base.errors import CommandError
from hlomem.base.sizes import parse_size
from hlomem.base.source import visible
from hlomem.machines.registry import CHIPS

_SMALLEST = 1 << 20
"""No device has less; who types less has left out the unit."""


class Capacity(Struct, frozen=True, kw_only=True):
    """The memory of a device."""

    size: int
    name: str = ""
    """The chip; empty where a size was given."""
    is_nominal: bool = False
    """Whether it is a data sheet's figure, of which the runtime keeps some."""
    note: str = ""
    """More to know about it, in words."""

    @property
    def label(self) -> str:
        """The chip as a user reads it: `v5e`, `h100, nominal`."""
        return f"{self.name}, nominal" if self.is_nominal else self.name


def capacity_of(chip: str) -> Capacity | None:
    """The memory of a chip; None where there is no such chip."""
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
        from difflib import get_close_matches  # noqa: PLC0415 - only a slip needs it

        near = get_close_matches(text.strip().lower(), CHIPS, n=2, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        known = ", ".join(CHIPS)
        problem = f"no capacity: `{visible(text)}`; give `16GiB` or a chip: {known}"
        raise CommandError(problem + hint)
    if size < _SMALLEST and text.strip().isdecimal():
        shown = visible(text.strip())
        raise CommandError(f"a capacity of `{shown}` is {size} bytes: give a unit, as in `16GiB`")
    return Capacity(size=size)
