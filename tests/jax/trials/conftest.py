"""Fixtures of the trials."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def eight_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight virtual devices of the CPU, in children."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    monkeypatch.setenv("XLA_FLAGS", flags.strip())
