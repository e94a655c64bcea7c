"""Every rule about the order of XLA's lists says what it rests on, and rests on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem.history.order import tables_of
from hlomem.history.rules import Rule
from hlomem.machines.options import options_for
from hlomem.machines.registry import machines_of
from hlomem.machines.releases import Release
from tests.places import GOLDENS
from tools.support import changes_without
from tools.tables import held

PLATFORMS = ("cpu", "gpu", "tpu")
RULES = [(platform, rule) for platform in PLATFORMS for rule in tables_of(platform).rules()]
PAGE = Path(__file__).parent.parent.parent / "docs" / "history.md"


def _name(case: object) -> str:
    return case.name if isinstance(case, Rule) else str(case)


@pytest.mark.parametrize(("platform", "rule"), RULES, ids=_name)
def test_without_a_rule_its_golden_changes(platform: str, rule: Rule) -> None:
    home = GOLDENS / "xla" / rule.basis.golden
    assert home.parent.name.partition("-")[0] == platform
    assert changes_without(home, rule.name)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_names_of_rules_differ(platform: str) -> None:
    names = [rule.name for rule in tables_of(platform).rules()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("platform", "rule"), RULES, ids=_name)
def test_rules_of_some_releases_agree_with_the_options(platform: str, rule: Rule) -> None:
    machine = machines_of(platform)[0]

    def applies(*version: int) -> bool:
        return rule.applies(options_for(machine, Release(machine.package, version)))

    if rule.until is not None:
        assert applies(*rule.until)
        assert not applies(0, 99)
    if rule.since is not None:
        assert applies(*rule.since)
        assert not applies(0, 0)
    assert rule.since or rule.until or rule.chips or not rule.option


@pytest.mark.parametrize(("platform", "rule"), RULES, ids=_name)
def test_the_page_lists_every_rule(platform: str, rule: Rule) -> None:
    assert f"| {rule.name} | {rule.basis.evidence.value} | {rule.basis.source} |" in held(
        PAGE, platform
    )
