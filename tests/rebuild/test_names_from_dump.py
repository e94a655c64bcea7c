"""Compact text (`%fusion#1`) beside its explicit twin."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import hlomem
from hlomem import hlo
from hlomem.hlo.text.printer import format_module
from hlomem.rebuild.names_from_dump import expand
from tests.places import GOLDENS

XLA = GOLDENS / "xla"
WITH_ELEMENTS = [
    path
    for path in sorted(XLA.glob("jaxlib-0.12.0.1/cpu/*/module.hlo"))
    if "get-tuple-element(" in path.read_text() and "is_scheduled=true" in path.read_text()
]


def _compact(text: str) -> str:
    module = hlo.parse(text)
    return format_module(module, module.style._replace(compact_gte=True))


@pytest.mark.parametrize("path", WITH_ELEMENTS, ids=lambda path: path.parent.name)
def test_a_dump_gives_a_compact_text_the_plan_of_its_explicit_twin(path: Path) -> None:
    """All but the order of some lists, which follows from metadata the text leaves out."""
    text = path.read_text()
    compact = _compact(text)
    assert compact != text
    dump = hlomem.load(str(path.with_name("buffer-assignment.txt")))
    explicit = hlomem.plan(text, backend="cpu")
    expanded = hlomem.plan(compact, backend="cpu", schedule=dump)
    assert expanded.notes == ()
    assert expanded.dump.assignment == explicit.dump.assignment
    assert expanded.dump.live_ranges == explicit.dump.live_ranges
    assert expanded.dump.report == explicit.dump.report
    assert Counter(str(expanded).splitlines()) == Counter(str(explicit).splitlines())


@pytest.mark.parametrize("path", WITH_ELEMENTS, ids=lambda path: path.parent.name)
def test_a_compact_text_alone_is_planned_and_says_what_it_lacks(path: Path) -> None:
    """The get-tuple-elements hold nothing of their own, so every buffer is there all the same."""
    text = path.read_text()
    alone = hlomem.plan(_compact(text), backend="cpu")
    (note,) = alone.notes
    assert "get-tuple-elements: names and slots are made up" in note
    assert alone.dump.values is not None
    wanted = hlomem.plan(text).dump.values
    assert wanted is not None
    assert {each.instruction.split(" = ")[0] for each in alone.dump.values.values} == {
        each.instruction.split(" = ")[0] for each in wanted.values
    }


def test_an_explicit_text_is_left_as_it_is() -> None:
    path = WITH_ELEMENTS[0]
    module = hlo.parse(path.read_text())
    assert expand(module, hlomem.load(str(path.with_name("buffer-assignment.txt")))) is module
