"""Sizes and percentages exactly as XLA prints them."""

from __future__ import annotations

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def human_bytes(size: int) -> str:
    """`size` rounded as XLA does: 512B, 1.5KiB, 17.37MiB (tsl: strings::HumanReadableNumBytes)."""
    sign = "-" if size < 0 else ""
    rest = abs(size)
    if rest < 1024:
        return f"{sign}{rest}B"
    unit = 0
    while rest >= 1024 * 1024 and unit < len(_UNITS) - 1:
        rest >>= 10
        unit += 1
    amount = rest / 1024
    return f"{sign}{amount:.1f}KiB" if unit == 0 else f"{sign}{amount:.2f}{_UNITS[unit]}"


def spaced(number: int) -> str:
    """`number` with a space between thousands, as the stack-trace breakdown prints it."""
    return f"{number:,}".replace(",", " ")
