"""Rules are compared by what they are, which tells whether two releases plan alike."""

from __future__ import annotations

import pytest

from hlomem.machines.alias import DEFAULT_RULES, AliasRules
from hlomem.machines.gpu_alias import may_alias
from hlomem.machines.machine import Machine
from hlomem.machines.options import options_for
from hlomem.machines.registry import MACHINES
from hlomem.machines.releases import find_release


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_asking_twice_gives_equal_rules(machine: Machine) -> None:
    options = options_for(machine, find_release("K"))
    assert machine.alias_rules(options) == machine.alias_rules(options)


def test_a_machine_without_rules_of_its_own_has_those_of_all() -> None:
    options = options_for(MACHINES["cpu"], find_release("K"))
    assert options.machine.alias_rules(options) is DEFAULT_RULES
    assert AliasRules(may_alias) != DEFAULT_RULES
