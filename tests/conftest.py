"""What all tests share: the goldens XLA wrote, and the larger corpus where it is at hand."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterable

# How long a machine takes is no property of the code.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

GOLDENS = Path(__file__).parent / "goldens"
_SHARED = Path(__file__).parent.parent.parent / "shared"
_COUNTED_WHOLE = Path(__file__).parent / "parity"
_UNCOUNTED = [Path(__file__).parent / folder for folder in ("fuzz", "properties")]
_COUNTED_CASES = 40


@pytest.fixture(scope="session")
def goldens() -> Path:
    """The folder of dumps and modules XLA wrote."""
    return GOLDENS


@pytest.fixture(scope="session")
def shared() -> Path:
    """The corpus beside the project; a clone without it does not have it."""
    if not (_SHARED / "corpus").is_dir():
        pytest.skip("the corpus is not beside this clone")
    return _SHARED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves out of the coverage what tells it nothing new, since tracing takes two thirds of it.

    Every case in words counts, and every golden once, where it is planned (`tests/parity`); of
    another test with many cases only some count, evenly chosen. Mutants and generated dumps do not,
    nor does the corpus, so that the figure is the same in every clone.
    """
    for _, cases in groupby(items, key=_test_of):
        repeated = list(cases)
        step = -(-len(repeated) // _COUNTED_CASES)
        for number, item in enumerate(repeated):
            if (number % step and not _is_counted_whole(item)) or _is_no_evidence(item):
                item.add_marker(pytest.mark.no_cover)


def _test_of(item: pytest.Item) -> tuple[Path, str]:
    return item.path, getattr(item, "originalname", item.name)


def _is_counted_whole(item: pytest.Item) -> bool:
    """Whether a case is in words, which somebody wrote, or plans a golden."""
    values = item.callspec.params.values() if isinstance(item, pytest.Function) else ()
    return item.path.is_relative_to(_COUNTED_WHOLE) or any(isinstance(v, str) for v in values)


def _is_no_evidence(item: pytest.Item) -> bool:
    """Whether what a test runs is made at random, or not in every clone."""
    fixtures: Iterable[str] = getattr(item, "fixturenames", ())
    return "shared" in fixtures or any(item.path.is_relative_to(home) for home in _UNCOUNTED)
