"""What a check says: findings, each with its evidence, and what could not be checked.

A `Finding` names the rule it breaks (an entry of `docs/verifier.md`), the values on both sides with
their live ranges, byte ranges and source lines, and the allocations it is about.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, TypeAlias

from msgspec import Struct

Severity: TypeAlias = Literal["error", "warning"]


class ValueEvidence(Struct, frozen=True, kw_only=True):
    """A value a finding is about, as the dump shows it."""

    id: int
    name: str
    """As XLA prints it: `while.5{1}`."""
    allocation: int | None = None
    start_byte: int | None = None
    end_byte: int | None = None
    """One past its last byte."""
    live_from: int | None = None
    live_to: int | None = None
    """The last moment it is alive at."""
    source: str = ""
    """File and line of the program, or the name of the operation, where the dump has one."""

    def __str__(self) -> str:
        words = [f"{self.name} (value {self.id})"]
        if self.live_from is not None:
            words.append(f"live {self.live_from}-{self.live_to}")
        if self.start_byte is not None:
            words.append(f"bytes [{self.start_byte}, {self.end_byte})")
        if self.allocation is not None:
            words.append(f"of allocation {self.allocation}")
        return " ".join(words)


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a plan."""

    rule: str
    """`family/name`, as in `docs/verifier.md`."""
    message: str
    severity: Severity = "error"
    values: tuple[ValueEvidence, ...] = ()
    allocations: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    """The facts the message rests on, one a line."""

    def __str__(self) -> str:
        return f"{self.severity}: {self.message} [{self.rule}]"


class NotChecked(Struct, frozen=True, kw_only=True):
    """A family of rules that could not be checked, and why."""

    rules: str
    reason: str


class Verdict(Struct, frozen=True, kw_only=True):
    """Everything a check has to say about one plan."""

    name: str
    """The dump."""
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    assumed: tuple[str, ...] = ()
    """What was taken for granted because the dump does not say it."""
    value_count: int = 0
    allocation_count: int = 0
    pair_count: int = 0
    """Pairs of values that share bytes while both are alive and were found to be right to."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that make the plan wrong."""
        return tuple(each for each in self.findings if each.severity == "error")

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found, not even a warning."""
        return not self.findings

    def counts(self) -> dict[str, int]:
        """How many findings each rule has, in the order of the rules' names."""
        return dict(sorted(Counter([each.rule for each in self.findings]).items()))
