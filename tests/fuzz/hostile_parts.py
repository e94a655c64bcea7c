"""The pieces of hostile modules: a header, a computation, a first and a last line."""

from __future__ import annotations

SCHEDULED = "is_scheduled=true"


def make_module(*computations: str, header: str = SCHEDULED) -> str:
    return f"HloModule hostile, {header}\n\n" + "\n\n".join(computations) + "\n"


def make_computation(name: str, lines: list[str], parameters: str = "p: f32[8]") -> str:
    """A computation whose last line is its root, an f32[8]."""
    *rest, root = lines
    body = "".join(f"  {line}\n" for line in rest) + f"  ROOT {root}\n"
    return f"{name} ({parameters}) -> f32[8] {{\n{body}}}"


def make_entry(*lines: str, header: str = SCHEDULED) -> str:
    return make_module(make_computation("ENTRY %main", list(lines)), header=header)


PARAMETER = "%p = f32[8]{0} parameter(0)"
NEGATED = "%r = f32[8]{0} negate(%p)"
