"""What analyses do differently from platform to platform, as tables.

Numbers (sizes, alignments, colors) are in `hlomem.backends`; here are rules.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from hlomem.analysis import gpu_alias_rules, tpu_alias_rules
from hlomem.analysis.alias_rules import DEFAULT_RULES, AliasRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.backends import Backend

ALIAS_RULES: Mapping[str, AliasRules] = MappingProxyType(
    {
        "gpu": AliasRules(gpu_alias_rules.may_alias, gpu_alias_rules.SHARING_OPCODES),
        "tpu": AliasRules(tpu_alias_rules.may_alias, tpu_alias_rules.SHARING_OPCODES),
    }
)
"""By platform; the others have no rules of their own."""


def alias_rules_of(backend: Backend) -> AliasRules:
    """The rules of a backend."""
    return ALIAS_RULES.get(backend.platform, DEFAULT_RULES)
