"""Findings as SARIF: what the standard's schema demands of what we write, and no more than it has.

The classes are the parts of `sarif-schema-2.1.0.json` that occur, with its required properties;
they refuse properties that the schema does not have.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct, field

import hlomem
from hlomem.base.sarif import MAX_RESULTS
from hlomem.check.findings import Finding, NotChecked, Verdict
from hlomem.check.rules import RULES
from hlomem.check.sarif import build_sarif
from hlomem.check.verify import verify
from hlomem.dump.records import Assignment
from tests import plain
from tests.check.faults import rebuilt
from tests.check.small import SOME_DUMP

Level = Literal["none", "note", "warning", "error"]
Uri = Annotated[str, Meta(pattern=r"^[A-Za-z0-9%_.~/!$&'()*+,;=:@?#-]*$")]


class Part(Struct, forbid_unknown_fields=True):
    """An object of the schema, all of which have `additionalProperties: false`."""


class Message(Part):
    """3.11; `text` or `id` is required."""

    text: Annotated[str, Meta(min_length=1)]


class ArtifactLocation(Part):
    """3.4."""

    uri: Uri


class Region(Part):
    """3.30."""

    startLine: Annotated[int, Meta(ge=1)]  # noqa: N815


class PhysicalLocation(Part):
    """3.29."""

    artifactLocation: ArtifactLocation  # noqa: N815
    region: Region | None = None


class LogicalLocation(Part):
    """3.33."""

    name: str


class Location(Part):
    """3.28."""

    physicalLocation: PhysicalLocation  # noqa: N815
    logicalLocations: list[LogicalLocation] = field(default_factory=list)  # noqa: N815
    message: Message | None = None


class Result(Part):
    """3.27; only `message` is required."""

    message: Message
    ruleId: str  # noqa: N815
    ruleIndex: Annotated[int, Meta(ge=-1)]  # noqa: N815
    level: Level
    locations: list[Location]
    partialFingerprints: dict[str, str]  # noqa: N815
    relatedLocations: list[Location] = []  # noqa: N815


class Rule(Part):
    """3.49, a reporting descriptor; `id` is required."""

    id: str
    shortDescription: Message  # noqa: N815


class Driver(Part):
    """3.19, a tool component; `name` is required."""

    name: str
    version: str
    rules: list[Rule]


class Tool(Part):
    """3.18; `driver` is required."""

    driver: Driver


class Notification(Part):
    """3.58; `message` is required."""

    message: Message
    level: Level


class Invocation(Part):
    """3.20; `executionSuccessful` is required."""

    executionSuccessful: bool  # noqa: N815
    toolExecutionNotifications: list[Notification]  # noqa: N815


class Run(Part):
    """3.14; `tool` is required."""

    tool: Tool
    invocations: list[Invocation]
    results: list[Result]


class Log(Part):
    """3.13; `version` and `runs` are required."""

    version: Literal["2.1.0"]
    runs: list[Run]
    schema: Uri = field(name="$schema", default="")


def read(sarif: dict[str, Any]) -> Run:
    """The one run of a log that is as the schema wants it."""
    (run,) = msgspec.json.decode(json.dumps(sarif), type=Log).runs
    for result in run.results:
        assert run.tool.driver.rules[result.ruleIndex].id == result.ruleId
    return run


RULE = "interference/overlap"
VALUE = plain.ValueEvidence(id=1, name="v\x1b", source="dir/train step.py:12")


def test_a_result_points_at_the_dump_and_at_the_program() -> None:
    finding = Finding(
        rule=RULE, message="m", values=(VALUE, plain.ValueEvidence(id=2, name="w", source="f"))
    )
    verdict = Verdict(name="x", findings=(finding,))
    (result,) = read(build_sarif(verdict, "1.0", "a b/dump.txt")).results
    assert result.message.text.startswith("m · v\\x1b (value 1)")
    (place,) = result.locations
    assert place.physicalLocation.artifactLocation.uri == "a%20b/dump.txt"
    assert [each.name for each in place.logicalLocations] == ["v\\x1b", "w"]
    (related,) = result.relatedLocations
    assert related.physicalLocation.artifactLocation.uri == "dir/train%20step.py"
    assert related.physicalLocation.region == Region(12)


def test_there_are_no_more_than_services_take() -> None:
    verdict = Verdict(name="x", findings=(Finding(rule=RULE, message="m"),) * (MAX_RESULTS + 2))
    run = read(build_sarif(verdict, "1.0", "x"))
    assert len(run.results) == MAX_RESULTS
    assert run.tool.driver.rules == [Rule(RULE, Message(RULES[RULE]))]
    notes = [each.message.text for each in run.invocations[0].toolExecutionNotifications]
    assert notes == ["2 more findings left out"]


def test_a_clean_verdict_says_what_was_not_checked() -> None:
    verdict = Verdict(name="x", not_checked=(NotChecked(rules="live", reason="no ranges"),))
    run = read(build_sarif(verdict, "1.0", "x"))
    assert run.results == []
    (note,) = run.invocations[0].toolExecutionNotifications
    assert note.message.text == "not checked: live: no ranges"


@pytest.mark.parametrize("line", ["0", "9" * 5000], ids=["none", "huge"])
def test_a_line_no_file_has_is_left_out(line: str) -> None:
    value = plain.ValueEvidence(id=1, name="v", source=f"a.py:{line}")
    verdict = Verdict(name="x", findings=(Finding(rule=RULE, message="m", values=(value,)),))
    (result,) = read(build_sarif(verdict, "1.0", "x")).results
    assert result.relatedLocations == []


def test_a_fingerprint_stays_when_places_move() -> None:
    lost = rebuilt(hlomem.load(SOME_DUMP), assignment=Assignment())
    first = read(build_sarif(verify(lost), "1.0", str(SOME_DUMP)))
    again = read(build_sarif(verify(lost), "2.0", str(Path("elsewhere"))))
    prints = [each.partialFingerprints["ruleAndValues/v1"] for each in first.results]
    assert prints == [each.partialFingerprints["ruleAndValues/v1"] for each in again.results]
    assert len(prints) > 5
