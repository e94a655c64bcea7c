"""Findings of reports as SARIF: of the standard's form, at lines, worth saying."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import hlomem
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import build_memory
from hlomem.report.findings_sarif import RULES, build_findings
from tests.check.test_sarif import Log
from tests.places import GOLDENS, ROOT

DUMPS = [
    ROOT / "examples/oom/before",
    GOLDENS / "seeds/003_e0d5fae9bf2de249.txt",
    *sorted((GOLDENS / "xla").glob("*/tpu*/*"))[::9],
]


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: path.name)
def test_logs_have_the_form_of_the_standard(dump: Path) -> None:
    memory = build_memory(hlomem.load(dump))
    log = build_findings(memory, find_space(memory), "1", str(dump))
    found = msgspec.json.decode(json.dumps(log), type=Log, strict=True)
    rules = [rule.id for rule in found.runs[0].tool.driver.rules]
    assert rules == sorted({result.ruleId for result in found.runs[0].results})
    assert set(rules) <= set(RULES)


def test_findings_name_line_and_bytes_and_are_worth_saying() -> None:
    memory = build_memory(hlomem.load(DUMPS[1]))
    space = find_space(memory)
    results = build_findings(memory, space, "1", "dump")["runs"][0]["results"]
    copies = [result for result in results if result["ruleId"] == "copies"]
    assert copies[0]["message"]["text"].startswith("a copy of 325.0 MiB, alive at the peak")
    region = copies[0]["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 663}
    sizes = [result["message"]["text"] for result in results if result["ruleId"] == "padding"]
    assert sizes == []  # 4.42 MiB of 1.26 GiB are not worth saying
