"""A verdict as SARIF 2.1.0; fingerprints survive changes of ids, offsets and steps."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from hlomem.base.sarif import build_log, file_location, line_location
from hlomem.base.source import visible
from hlomem.check.rules import RULES

if TYPE_CHECKING:
    from hlomem.check.findings import Finding, Verdict


def build_sarif(verdict: Verdict, version: str, path: str) -> dict[str, Any]:
    notes = [f"not checked: {gap.rules}: {gap.reason}" for gap in verdict.not_checked]
    results = [_result(finding, path) for finding in verdict.findings]
    return build_log(RULES, results, notes, version)


def _result(finding: Finding, path: str) -> dict[str, Any]:
    lines = [finding.message, *map(str, finding.values), *finding.evidence]
    names = [visible(value.name) for value in finding.values]
    return {
        "ruleId": finding.rule,
        "level": finding.severity,
        "message": {"text": visible(" · ".join(lines))},
        "locations": [
            {
                "physicalLocation": file_location(path),
                "logicalLocations": [{"name": name} for name in names],
            }
        ],
        "relatedLocations": [
            {"message": {"text": visible(value.name)}, "physicalLocation": location}
            for value in finding.values
            if (location := line_location(value.source)) is not None
        ],
        "partialFingerprints": {
            "ruleAndValues/v1": sha256("\n".join([finding.rule, *names]).encode()).hexdigest()
        },
    }
