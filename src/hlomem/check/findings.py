"""The result of a check: findings with their evidence, and the rules that could not be checked.

A `Finding` names the rule it breaks (an entry of `docs/verifier.md`), the values on both sides with
their live ranges, byte ranges and source lines, and the allocations it is about.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, TypeAlias

from msgspec import Struct

from hlomem.base.quantities import (  # noqa: TC001 - msgspec reads them
    AllocationIndex,
    Offset,
    Step,
    ValueId,
)

Severity: TypeAlias = Literal["error", "warning"]


class ValueEvidence(Struct, frozen=True, kw_only=True):
    """A value a finding is about, as the dump shows it."""

    id: ValueId
    name: str
    """As XLA prints it: `while.5{1}`."""
    allocation: AllocationIndex | None = None
    start_byte: Offset | None = None
    end_byte: Offset | None = None
    """One past its last byte."""
    live_from: Step | None = None
    live_to: Step | None = None
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
    allocations: tuple[AllocationIndex, ...] = ()
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
    """Assumptions made because the dump does not say."""
    value_count: int = 0
    allocation_count: int = 0
    pair_count: int = 0
    """Pairs of values that share bytes while both are alive, proved safe."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that make the plan wrong."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found, not even a warning."""
        return not self.findings

    def counts(self) -> dict[str, int]:
        """The number of findings of each rule, sorted by the rules' names."""
        return dict(sorted(Counter([finding.rule for finding in self.findings]).items()))
