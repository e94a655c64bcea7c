"""The type of a machine's own alias rules, beside those of all machines.

Mirrors `AliasInfo` of `xla/hlo/analysis/alias_info.h`, which every compiler of XLA derives from.
The rules of all are in `hlomem.analysis.alias_rules`; a machine's are found through its file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import ShapeIndex


class AliasRules(Struct, frozen=True):
    """Two releases with equal rules have equal objects: plans are compared by them."""

    may_alias: Callable[[HloInstruction, HloInstruction, ShapeIndex], bool | None] | None = None
    """Whether a user may overwrite an operand with a part of its result; None where the rules of
    all machines decide (`AliasInfo::MayAlias`)."""
    opcodes: frozenset[str] = frozenset()
    """Opcodes that may share with it and never without."""


DEFAULT_RULES = AliasRules()
