"""A verdict as SARIF 2.1.0, the form code scanning services read.

They take at most 5,000 results of a run and refuse larger files; what is left out is said. A
result points at the dump; the lines of the program its values come from are related locations. Its
fingerprint is made of the rule and the names of the values, so that it stays the same when ids,
offsets and times move.
"""

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
    """One run of the checker over one dump, which is the file `path`."""
    shown = verdict.findings[:MAX_RESULTS]
    rules = sorted({finding.rule for finding in shown})
    notes = [f"not checked: {each.rules}: {each.reason}" for each in verdict.not_checked]
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
    names = [visible(each.name) for each in finding.values]
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
            {"message": {"text": visible(each.name)}, "physicalLocation": place}
            for each in finding.values
            if (place := _source_line(each)) is not None
        ],
        "partialFingerprints": {"ruleAndValues/v1": _fingerprint(finding.rule, *names)},
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


def _fingerprint(*words: str) -> str:
    return sha256("\n".join(words).encode()).hexdigest()
