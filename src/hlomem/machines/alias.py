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
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import ShapeIndex


class AliasRules(Struct, frozen=True):
    """A machine's own rules for sharing; equal for two releases that share alike."""

    may_alias: Callable[[HloInstruction, HloInstruction, ShapeIndex], bool | None] | None = None
    """A predicate of an operand, a user and a part of its result: whether that may overwrite the
    operand (`AliasInfo::MayAlias`). It returns None where the rules of all machines decide."""
    opcodes: frozenset[Opcode] = frozenset()
    """Opcodes that may share with it and never without."""
    counts_elements: bool = False
    """Whether it goes by more of shapes than by which are equal, so that sizes decide, too."""


DEFAULT_RULES = AliasRules()
