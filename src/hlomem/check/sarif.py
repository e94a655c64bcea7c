"""A verdict as SARIF 2.1.0; fingerprints survive changes of ids, offsets and steps."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hlomem.base.source import visible
from hlomem.check.rules import RULES

if TYPE_CHECKING:
    from hlomem.check.findings import Finding, ValueEvidence, Verdict

MAX_RESULTS = 5000
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_SOURCE_LINE = re.compile(r"(.+):(\d{1,9})")


def build_sarif(verdict: Verdict, version: str, path: str) -> dict[str, Any]:
    shown = verdict.findings[:MAX_RESULTS]
    rules = sorted({finding.rule for finding in shown})
    notes = [f"not checked: {gap.rules}: {gap.reason}" for gap in verdict.not_checked]
    if len(verdict.findings) > len(shown):
        notes.append(f"{len(verdict.findings) - len(shown)} more findings left out")
    driver = {
        "name": "hlomem",
        "version": version,
        "rules": [{"id": rule, "shortDescription": {"text": RULES[rule]}} for rule in rules],
    }
    invocation = {
        "executionSuccessful": True,
        "toolExecutionNotifications": [
            {"level": "note", "message": {"text": visible(note)}} for note in notes
        ],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "results": [_result(finding, path, rules.index(finding.rule)) for finding in shown],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(finding: Finding, path: str, rule_index: int) -> dict[str, Any]:
    lines = [finding.message, *map(str, finding.values), *finding.evidence]
    names = [visible(value.name) for value in finding.values]
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": finding.severity,
        "message": {"text": visible(" · ".join(lines))},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": _uri(path)}},
                "logicalLocations": [{"name": name} for name in names],
            }
        ],
        "relatedLocations": [
            {"message": {"text": visible(value.name)}, "physicalLocation": location}
            for value in finding.values
            if (location := _source_line(value)) is not None
        ],
        "partialFingerprints": {
            "ruleAndValues/v1": sha256("\n".join([finding.rule, *names]).encode()).hexdigest()
        },
    }


def _source_line(value: ValueEvidence) -> dict[str, Any] | None:
    match = _SOURCE_LINE.fullmatch(value.source)
    if match is None or int(match.group(2)) < 1:
        return None
    return {
        "artifactLocation": {"uri": _uri(match.group(1))},
        "region": {"startLine": int(match.group(2))},
    }


def _uri(path: str) -> str:
    return quote(visible(path))
