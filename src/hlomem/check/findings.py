"""The result of a check: findings with evidence, and the rules that could not be checked."""

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
    """A value of a finding, as in the dump."""

    id: ValueId
    name: str
    """As XLA prints it: `while.5{1}`."""
    allocation: AllocationIndex | None = None
    start_byte: Offset | None = None
    end_byte: Offset | None = None
    """One past its last byte."""
    live_from: Step | None = None
    live_to: Step | None = None
    """The last step, inclusive."""
    source: str = ""
    """File and line of the program, or the name of the operation."""

    def __str__(self) -> str:
        words = [f"{self.name} (value {self.id})"]
        if self.live_from is not None:
            words.append(f"live {self.live_from}-{self.live_to}")
        if self.start_byte is not None:
            words.append(f"bytes [{self.start_byte}, {self.end_byte})")
        if self.allocation is not None:
            words.append(f"of allocation {self.allocation}")
        return " ".join(words)


class Finding(Struct, frozen=True):
    """One error of a plan."""

    rule: str
    """`family/name`, as in `docs/verifier.md`."""
    message: str
    severity: Severity = "error"
    values: tuple[ValueEvidence, ...] = ()
    allocations: tuple[AllocationIndex, ...] = ()
    evidence: tuple[str, ...] = ()
    """Facts that support the message, one a line."""

    def __str__(self) -> str:
        return f"{self.severity}: {self.message} [{self.rule}]"


class NotChecked(Struct, frozen=True):
    """A family of rules that could not be checked, and why."""

    rules: str
    reason: str


class Verdict(Struct, frozen=True, kw_only=True):
    """The result of checking one plan."""

    name: str
    """The dump's."""
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    assumed: tuple[str, ...] = ()
    """Assumptions where the dump leaves a choice."""
    value_count: int = 0
    allocation_count: int = 0
    pair_count: int = 0
    """Pairs of values proved to share bytes safely while both are live."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that make the plan wrong."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def is_clean(self) -> bool:
        """Whether there are no findings, not even warnings."""
        return not self.findings

    def counts(self) -> dict[str, int]:
        """The number of findings by rule, sorted."""
        return dict(sorted(Counter([finding.rule for finding in self.findings]).items()))
