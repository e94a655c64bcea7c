"""Whatever records say, their text says; whatever the text says, the records say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.base.source import Source
from hlomem.dump import assignment, live_range, usage_report, values
from hlomem.dump.dump import join_parts
from hlomem.dump.eras import ERAS, Era
from hlomem.dump.file_names import Kind
from hlomem.dump.parts import Contents, Wrapping, format_part, parse_part
from hlomem.dump.records import (
    AllocationReport,
    Assignment,
    LiveRanges,
    SpaceReport,
    UsageReport,
    Values,
)
from hlomem.dump.values import Style

from . import strategies as some

few = settings(max_examples=100, derandomize=True, deadline=None)


def source(text: str) -> Source:
    return Source("generated", text)


@few
@given(some.assignments(pages=True) | some.assignments(pages=False))
def test_allocations_are_read_as_they_were_printed(records: Assignment) -> None:
    assert assignment.parse(source(assignment.format(records))) == records


@few
@given(some.values, some.styles)
def test_values_are_read_as_they_were_printed(records: Values, style: Style) -> None:
    assert values.parse(source(values.format(records, style)), style) == records


@few
@given(
    st.tuples(st.booleans(), st.booleans(), st.booleans()).flatmap(
        lambda prints: some.live_ranges(
            index=prints[0], cumulative=prints[1], stack_trace=prints[2]
        )
    )
)
def test_live_ranges_are_read_as_they_were_printed(records: LiveRanges) -> None:
    assert live_range.parse(source(live_range.format(records))) == records


@few
@given(some.allocation_reports())
def test_reports_by_allocation_are_read_as_they_were_printed(records: AllocationReport) -> None:
    assert usage_report.parse(source(usage_report.format(records))) == records


@few
@given(some.space_reports)
def test_reports_by_space_are_read_as_they_were_printed(records: SpaceReport) -> None:
    assert usage_report.parse(source(usage_report.format(records))) == records


def contents_of(era: Era) -> st.SearchStrategy[Contents]:
    """Records that say what this era prints, and no more."""
    features = era.features
    reports: st.SearchStrategy[UsageReport | None] = st.none()
    if features.report is not None and "by-allocation" in features.report:
        reports = some.allocation_reports()
    elif features.report is not None and "by-space" in features.report:
        reports = some.space_reports
    return st.builds(
        Contents,
        some.assignments(pages=bool(features.pages)),
        some.values,
        some.live_ranges(
            index=bool(features.peak_index),
            cumulative=bool(features.peak_cumulative),
            stack_trace=bool(features.stack_trace),
        ),
        reports,
    )


def kinds_of(era: Era, contents: Contents) -> list[Kind]:
    """The files this era writes."""
    kinds: list[Kind] = (
        ["assignment", "values", "live-range"] if era.features.split else ["combined"]
    )
    return kinds if contents.report is None else [*kinds, "report"]


@pytest.mark.parametrize("era", ERAS, ids=lambda era: era.letter)
def test_whole_dumps_are_read_as_they_were_printed(era: Era) -> None:
    @settings(max_examples=20, derandomize=True, deadline=None)
    @given(contents_of(era), st.booleans(), st.booleans())
    def check(contents: Contents, has_bom: bool, has_crlf: bool) -> None:
        wrapping = Wrapping(has_bom=has_bom, has_crlf=has_crlf)
        kinds = kinds_of(era, contents)
        texts = [wrapping.restore(format_part(kind, contents, era)) for kind in kinds]
        dump = join_parts("generated", [parse_part(source(text)) for text in texts])
        assert [part.kind for part in dump.parts] == kinds
        read = Contents(dump.assignment, dump.values, dump.live_ranges, dump.report)
        assert read == contents
        for each in dump.eras:
            assert [dump.part_text(part, each) for part in dump.parts] == texts

    check()
