"""What a verdict says of its findings."""

from __future__ import annotations

from hlomem.check.findings import Finding, Verdict
from tests import plain


def test_a_verdict_counts_by_rule() -> None:
    verdict = Verdict(
        name="x",
        findings=(
            Finding(rule="b/c", message="m"),
            Finding(rule="a/c", message="m", severity="warning"),
            Finding(rule="b/c", message="m"),
        ),
    )
    assert verdict.counts() == {"a/c": 1, "b/c": 2}
    assert len(verdict.errors) == 2
    assert not verdict.is_clean
    assert str(plain.ValueEvidence(id=3, name="v")) == "v (value 3)"
