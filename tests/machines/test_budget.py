"""Memory budgets as people name them."""

from __future__ import annotations

import pytest

from hlomem.base.errors import CommandError
from hlomem.machines.budget import MemoryBudget, parse_budget


@pytest.mark.parametrize(
    ("fit", "budget"),
    [
        (None, MemoryBudget()),
        (1 << 20, MemoryBudget(1 << 20)),
        ("48 MiB", MemoryBudget(48 << 20)),
        (0.5, MemoryBudget(share=0.5)),
        (1.0, MemoryBudget(share=1.0)),
        ("25%", MemoryBudget(share=0.25)),
    ],
)
def test_a_budget_is_bytes_a_size_or_a_share(fit: float | str | None, budget: MemoryBudget) -> None:
    assert parse_budget(fit) == budget


def test_a_share_is_of_the_temporaries_alone() -> None:
    assert parse_budget(0.5).limit_of(1000, 600) == 1300
    assert parse_budget(2000).limit_of(1000, 600) == 2000
    assert parse_budget(None).limit_of(1000, 600) is None


@pytest.mark.parametrize("fit", [0, -1, 0.0, 1.5, "0%", "150%", "some%"])
def test_what_is_no_budget_is_refused(fit: float | str) -> None:
    with pytest.raises(CommandError, match=r"share|fit"):
        parse_budget(fit)
