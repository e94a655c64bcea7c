"""Trees of arguments and scopes: subtotals add up, numbered siblings are one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hlomem.report.data.branches import Branch, Tree
from hlomem.report.data.lookup import find_space
from hlomem.report.data.peak import build_snapshot
from tests.trials import trial


def _check(branches: Sequence[Branch]) -> None:
    for branch in branches:
        below = sum(child.size for child in branch.children)
        assert below <= branch.size
        assert sum(child.count for child in branch.children) <= branch.count
        _check(branch.children)
    sizes = [branch.size for branch in branches]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("by", ["arg", "scope"])
@pytest.mark.parametrize("depth", [1, 2, 9])
def test_branches_add_up_to_the_peak_at_any_depth(by: Tree, depth: int) -> None:
    memory = trial("tpu/gpt")
    alive = build_snapshot(memory, find_space(memory), by=by, depth=depth)
    assert sum(branch.size for branch in alive.branches) == alive.size
    _check(alive.branches)


def test_arguments_have_subtotals_and_blocks_are_merged() -> None:
    memory = trial("tpu/gpt")
    rows = build_snapshot(memory, find_space(memory), by="arg").branches
    top = {branch.key: branch for branch in rows}
    assert {"params", "opt_state[0]", "tokens"} <= set(top)
    assert [child.key for child in top["opt_state[0]"].children] == [".mu", ".nu", ".count"]
    blocks = {child.key: child.merged for child in top["params"].children}
    assert blocks["['block_*']"] == 2
    assert sum(child.size for child in top["params"].children) == top["params"].size


def test_scopes_are_merged_too() -> None:
    memory = trial("tpu/gpt")
    rows = build_snapshot(memory, find_space(memory), by="scope").branches
    [forward] = [branch for branch in rows if branch.key == "jvp(GPT)"]
    assert "block_*" in {child.key for child in forward.children}


def test_other_groups_are_no_trees() -> None:
    memory = trial("tpu/gpt")
    assert build_snapshot(memory, find_space(memory), by="line").branches == ()
