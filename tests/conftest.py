"""What all tests share: the goldens XLA wrote, and the larger corpus where it is at hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long a machine takes is no property of the code.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

GOLDENS = Path(__file__).parent / "goldens"
_SHARED = Path(__file__).parent.parent.parent / "shared"


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
