"""The guard names the rule that moved, and the first program that shows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import find_release
from tests.places import GOLDENS
from tools.guard import Finding, examine, row, write_row

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.machines.options import Options

XLA = GOLDENS / "xla"
PLANTED = {
    "forwards_call_markers": "jaxlib-0.12.0.1/cpu/inlined_function",
    "async_results_begin_late": "jaxlib-0.12.0.1/gpu-h200/reduced_in_place",
    "shares_at_any_position": "jaxlib-0.11.1/cpu/sorted_twice",
}


def rules_of(entry: Path) -> Options:
    """The rules of the release that wrote an entry."""
    origin = json.loads((entry / "origin.json").read_text())
    machine = find_machine(origin["backend"], origin.get("chip") or "")
    return options_for(machine, find_release(entry.parent.parent.name))


@pytest.mark.parametrize(("rule", "name"), PLANTED.items())
def test_a_planted_difference_is_found_and_named(rule: str, name: str) -> None:
    entry = XLA / name
    rules = rules_of(entry)
    assert examine(entry, rules) == Finding(entry.name, "", "")
    planted = replace(rules, **{rule: not getattr(rules, rule)})
    found = examine(entry, planted)
    assert found.differs
    assert found.rule == rule
    assert f"`{rule}`: `{entry.name}`" in row("jaxlib-9.9.9", [found])


def test_what_no_rule_explains_is_said_to_be_so() -> None:
    entry = XLA / "jaxlib-0.12.0.1/cpu/twin_sends_other"
    found = examine(entry, rules_of(entry))
    assert (found.differs, found.rule) == ("places", "")
    assert "places, no known rule: `twin_sends_other`" in row("jaxlib-9.9.9", [found])


def test_a_release_has_one_row_newest_first(tmp_path: Path) -> None:
    page = tmp_path / "guard.md"
    page.write_text(
        "# Guard\n\n| release | programs | values | live ranges | places | ids | moved |\n"
        "|---|---|---|---|---|---|---|\n\nEnd.\n"
    )
    for release in ("jaxlib-0.9.2", "libtpu-0.0.51", "jaxlib-0.10.0", "jaxlib-0.9.2"):
        write_row(page, release, row(release, [Finding("one", "", "")]))
    lines = page.read_text().splitlines()
    listed = [line.split("|")[1].strip() for line in lines if "lib-" in line or "libtpu-" in line]
    assert listed == ["libtpu-0.0.51", "jaxlib-0.10.0", "jaxlib-0.9.2"]
    assert lines[-1] == "End."
