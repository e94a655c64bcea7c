"""A rule about the past of a module, and what it rests on.

Every row of the tables in `computations`, `instructions` and `users` is a rule. docs/history.md
lists them all, and `tools/support.py` measures who needs which.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import NamedTuple

from msgspec import Struct

Version = tuple[int, ...]
"""Of jaxlib, or on TPU of libtpu."""


class Evidence(Enum):
    CITED = "cited"
    """XLA's source says so, at the location named."""
    OBSERVED = "observed"
    """Dumps show it: those of single passes, or names and numbers that leave no other reading."""
    FITTED = "fitted"
    """It explains the order of the modules there are; why is not known."""


class Basis(NamedTuple):
    evidence: Evidence
    source: str
    """XLA's file and function (below `xla/`), or the dumps it was read off."""
    golden: str
    """One of the goldens that change without it, as `release/machine/program`."""


cited, observed, fitted = (partial(Basis, evidence) for evidence in Evidence)


class Rule(Struct, frozen=True):
    """A statement about how XLA's lists came about."""

    name: str
    basis: Basis
    since: Version | None = None
    until: Version | None = None
    chips: str = ""
    """The chips whose compiler has it, in words; empty for all."""
    option: str = ""
    """The field of `Options` that says if a release or chip has it, or `not ` and that field."""

    def applies(self, options: object) -> bool:
        """True if the release that `options` describe has it."""
        denied = self.option.startswith(_NOT)
        return not self.option or getattr(options, self.option.removeprefix(_NOT)) is not denied


_NOT = "not "
