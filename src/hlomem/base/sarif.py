"""SARIF 2.1.0: the parts that every log of findings has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hlomem.base.source import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_RESULTS = 5000
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_SOURCE_LINE = re.compile(r"(.+):(\d{1,9})")


def build_log(
    rules: Mapping[str, str],
    results: Sequence[dict[str, Any]],
    notes: Sequence[str],
    version: str,
) -> dict[str, Any]:
    """A log of results, at most `MAX_RESULTS`; `rules` describes those that occur."""
    notes = list(notes)
    if len(results) > MAX_RESULTS:
        notes.append(f"{len(results) - MAX_RESULTS} more findings left out")
    shown = results[:MAX_RESULTS]
    used = sorted({result["ruleId"] for result in shown})
    driver = {
        "name": "hlomem",
        "version": version,
        "rules": [{"id": rule, "shortDescription": {"text": rules[rule]}} for rule in used],
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
        "results": [{**result, "ruleIndex": used.index(result["ruleId"])} for result in shown],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def file_location(path: str) -> dict[str, Any]:
    return {"artifactLocation": {"uri": quote(visible(path))}}


def line_location(source: str | None) -> dict[str, Any] | None:
    """The location of `file:line`; None for anything else."""
    match = _SOURCE_LINE.fullmatch(source or "")
    if match is None or int(match.group(2)) < 1:
        return None
    return {**file_location(match.group(1)), "region": {"startLine": int(match.group(2))}}
