"""A machine names its own alias rules."""

from __future__ import annotations

import pytest

from hlomem.analysis import gpu_alias, tpu_alias
from hlomem.analysis.machine_rules import DEFAULT_RULES, AliasRules, rules_of
from hlomem.machines.registry import MACHINES

RULES = {"cpu": DEFAULT_RULES, "gpu": gpu_alias.RULES, "tpu": tpu_alias.RULES}


@pytest.mark.parametrize("name", MACHINES)
def test_the_rules_are_those_of_the_platform(name: str) -> None:
    machine = MACHINES[name]
    assert rules_of(machine) is RULES[machine.platform]


def test_rules_compare_by_content() -> None:
    assert AliasRules(gpu_alias.may_alias) != DEFAULT_RULES
    assert AliasRules() == DEFAULT_RULES
