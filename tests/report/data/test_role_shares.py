"""Roles add up to the space, holes and padding among them."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem.report.data import roles
from hlomem.report.data.memory import build_memory
from hlomem.report.data.occupancy import build_role_shares
from tests.places import GOLDENS, ROOT

DUMPS = sorted((GOLDENS / "xla").glob("*/*/*"))[::7]


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: "/".join(p.parts[-3:]))
def test_shares_are_sorted_named_once_and_add_up(path: Path) -> None:
    memory = build_memory(hlomem.load(path))
    for space in memory.spaces:
        shares = build_role_shares(memory, space.color)
        assert sum(share.size for share in shares) == space.size
        assert len({share.role for share in shares}) == len(shares)
        assert [share.size for share in shares] == sorted(
            (share.size for share in shares), reverse=True
        )
        assert all((share.count == 0) == (share.role in roles.NO_BUFFERS) for share in shares)


def test_an_arguments_padding_is_padding() -> None:
    memory = build_memory(hlomem.load(ROOT / "examples" / "oom" / "before"))
    sizes = {share.role: share.size for share in build_role_shares(memory, 0)}
    assert 0 < sizes[roles.PADDING] < sizes[roles.WEIGHTS]
