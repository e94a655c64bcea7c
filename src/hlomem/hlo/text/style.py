"""The style of a text of HLO: the settings of the printer, recognised from a text or chosen.

Mirrors the part of `hlo/ir/hlo_print_options.h` that differs between the texts XLA writes.
"""

from __future__ import annotations

from typing import NamedTuple

UNSAID = "{...}"
"""The print of a large literal, or of a tuple."""
MAX_ELEMENTS = 10
"""How many elements a literal has that is printed in any style."""


class TextStyle(NamedTuple):
    """Printer settings; the defaults are the text of the newest XLA's `--xla_dump_hlo_as_text`."""

    percent: bool = True
    """Names carry a `%` (`print_percent`)."""
    operand_shapes: bool = False
    """Each operand is preceded by its shape (`print_operand_shape`)."""
    program_shape: bool = True
    """A computation's head says its parameters and result (`print_program_shape`)."""
    compact_gte: bool = False
    """`%fusion#1` stands for a get-tuple-element that has no line (`compact_gte`)."""
    name_after_brace: bool = False
    """`} // name` closes a computation of more than five (`print_name_after_closing_brace`)."""
    async_sugar: bool = False
    """`slice-start(...)` for an async-start that wraps one slice (`syntax_sugar_async_ops`)."""
    large_constants: bool = True
    """Literals of tuples and of more than ten elements are written, where they are known, and not
    left out as `{...}` (`print_large_constants`)."""
    proto_order: bool = False
    """JSON of `backend_config` in the order of the proto's fields, not sorted by key."""
