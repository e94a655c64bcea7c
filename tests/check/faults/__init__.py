"""Faults put into real plans, and an oracle that says which of them do harm."""

from __future__ import annotations

from tests.check.faults.injector import Fault, Injector, Maker, rebuilt
from tests.check.faults.lists import LISTS
from tests.check.faults.lives import LIVES
from tests.check.faults.oracle import Label, judge
from tests.check.faults.places import PLACES

KINDS: dict[str, Maker] = {**PLACES, **LIVES, **LISTS}

__all__ = ["KINDS", "Fault", "Injector", "Label", "judge", "rebuilt"]
