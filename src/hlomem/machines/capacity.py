"""How much memory a device has: a size, or the name of a chip.

    16GiB  15.75G  v5e  h100

Of a chip it is the nominal memory of one device as JAX counts them; the runtime keeps some.
"""

from __future__ import annotations

from hlomem.base.errors import CommandError
from hlomem.base.sizes import parse_size
from hlomem.base.source import visible
from hlomem.dump.records import Record

GIB_OF_CHIP = {
    "v2": 8,
    "v3": 16,
    "v4": 32,
    "v5e": 16,
    "v5p": 95,
    "v6e": 32,
    "tpu7x": 96,
    "t4": 16,
    "l4": 24,
    "v100": 16,
    "a100": 40,
    "a100-80": 80,
    "h100": 80,
    "h200": 141,
    "b200": 180,
    "mi300x": 192,
}


class Capacity(Record, frozen=True, kw_only=True):
    """The memory of a device."""

    size: int
    name: str
    """The chip; empty where a size was given."""


def parse_capacity(text: str) -> Capacity:
    """`16GiB`, `16GB` (10⁹), `15.75G` (2³⁰, as XLA prints it), a number of bytes, or a chip."""
    name = text.strip().lower()
    if name in GIB_OF_CHIP:
        return Capacity(size=GIB_OF_CHIP[name] << 30, name=name)
    size = parse_size(text)
    if size is None:
        known = ", ".join(GIB_OF_CHIP)
        raise CommandError(f"no capacity: `{visible(text)}`; give `16GiB` or a chip: {known}")
    return Capacity(size=size, name="")
