"""Every rule about the order of XLA's lists says what it rests on, and rests on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem.history.order import tables_of
from hlomem.history.rules import Rule
from hlomem.machines.machine import CPU
from hlomem.machines.options import options_for, options_for_libtpu
from tests.places import GOLDENS
from tools.support import changes_without

PLATFORMS = ("cpu", "gpu", "tpu")
RULES = [(platform, rule) for platform in PLATFORMS for rule in tables_of(platform).rules()]
PAGE = Path(__file__).parent.parent.parent / "docs" / "history.md"


def _name(case: object) -> str:
    return case.name if isinstance(case, Rule) else str(case)


@pytest.mark.parametrize(("platform", "rule"), RULES, ids=_name)
def test_without_a_rule_its_golden_changes(platform: str, rule: Rule) -> None:
    home = GOLDENS / "xla" / rule.golden
    assert home.parent.name.partition("-")[0] == platform
    assert changes_without(home, rule.name)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_names_of_rules_differ(platform: str) -> None:
    names = [rule.name for rule in tables_of(platform).rules()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("platform", "rule"), RULES, ids=_name)
def test_rules_of_some_releases_agree_with_the_options(platform: str, rule: Rule) -> None:
    make_options = options_for_libtpu if platform == "tpu" else options_for
    if rule.until is not None:
        assert rule.applies(make_options(CPU, rule.until))
        assert not rule.applies(make_options(CPU, (0, 99)))
    if rule.since is not None:
        assert rule.applies(make_options(CPU, rule.since))
        assert not rule.applies(make_options(CPU, (0, 0)))
    assert (rule.since or rule.until) or not rule.option


@pytest.mark.parametrize(("platform", "rule"), RULES, ids=_name)
def test_the_page_lists_every_rule(platform: str, rule: Rule) -> None:
    start = PAGE.read_text(encoding="utf-8").partition(f"<!-- {platform} -->")[2]
    assert f"| {rule.name} | {rule.evidence.value} | {rule.source} |" in start
