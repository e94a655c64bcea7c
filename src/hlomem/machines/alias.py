"""What analyses do differently from platform to platform.

Numbers (sizes, alignments, colors) are in `hlomem.machines.machine`; here are rules. The modules
of a platform are imported when it is planned for, so that the others start sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.alias_rules import DEFAULT_RULES, AliasRules

if TYPE_CHECKING:
    from hlomem.machines.machine import Backend


def alias_rules_of(backend: Backend) -> AliasRules:
    """The rules of a backend."""
    if backend.platform == "gpu":
        from hlomem.machines import gpu_alias as gpu_alias_rules  # noqa: PLC0415

        return AliasRules(gpu_alias_rules.may_alias, gpu_alias_rules.SHARING_OPCODES)
    if backend.platform == "tpu":
        from hlomem.machines import tpu_alias as tpu_alias_rules  # noqa: PLC0415

        return AliasRules(tpu_alias_rules.may_alias, tpu_alias_rules.SHARING_OPCODES)
    return DEFAULT_RULES
