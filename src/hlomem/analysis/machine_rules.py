"""A machine's own alias rules, in addition to those of all machines (`alias_rules`).

Mirrors the classes that XLA's compilers derive from `AliasInfo` (`xla/hlo/analysis/alias_info.h`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import ShapeIndex
    from hlomem.machines.machine import Machine


class AliasRules(Struct, frozen=True):
    may_alias: Callable[[HloInstruction, HloInstruction, ShapeIndex], bool | None] | None = None
    """`AliasInfo::MayAlias`; None leaves it to the rules of all machines."""
    opcodes: frozenset[Opcode] = frozenset()
    """Opcodes that share an operand's buffer by these rules only."""
    counts_elements: bool = False
    """Whether the rules depend on extents, not only on which shapes are equal."""


DEFAULT_RULES = AliasRules()


def rules_of(machine: Machine) -> AliasRules:
    """The rules a machine names; its module is imported on first use."""
    if not machine.alias_rules:
        return DEFAULT_RULES
    rules: AliasRules = import_module(f"hlomem.analysis.{machine.alias_rules}").RULES
    return rules
