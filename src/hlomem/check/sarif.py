"""A verdict as SARIF 2.1.0, the form code scanning services read.

They take at most 5,000 results of a run and refuse larger files; what is left out is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.source import visible

if TYPE_CHECKING:
    from hlomem.check.findings import Finding, Verdict

MOST_RESULTS = 5000
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def build_sarif(verdict: Verdict, version: str) -> dict[str, Any]:
    """One run of the checker over one dump."""
    shown = verdict.findings[:MOST_RESULTS]
    rules = sorted({finding.rule for finding in shown})
    notes = [f"not checked: {each.rules}: {each.reason}" for each in verdict.not_checked]
    if len(verdict.findings) > len(shown):
        notes.append(f"{len(verdict.findings) - len(shown)} more findings left out")
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "hlomem",
                        "version": version,
                        "rules": [{"id": rule} for rule in rules],
                    }
                },
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "toolExecutionNotifications": [
                            {"level": "note", "message": {"text": visible(note)}} for note in notes
                        ],
                    }
                ],
                "results": [_result(finding, verdict.name) for finding in shown],
            }
        ],
    }


def _result(finding: Finding, name: str) -> dict[str, Any]:
    lines = [finding.message, *map(str, finding.values), *finding.evidence]
    return {
        "ruleId": finding.rule,
        "level": finding.severity,
        "message": {"text": visible(" · ".join(lines))},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": visible(name).replace(" ", "%20")}
                },
                "logicalLocations": [{"name": visible(each.name)} for each in finding.values],
            }
        ],
    }
