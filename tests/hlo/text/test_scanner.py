"""Texts taken apart natively and by patterns: the same parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from msgspec.structs import astuple

from hlomem.base.native import kernel
from hlomem.hlo.opcodes import CALL_ATTRIBUTE_NAMES
from hlomem.hlo.text import scanner
from tests.golden_programs import GOLDEN_PROGRAMS, GoldenProgram
from tests.hlo.native import PROGRAM, damaged_texts, in_python, needs_native

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.text.scanner import ComputationText


def _native(function: str) -> Callable[..., Any]:
    found: Callable[..., Any] = kernel("hlomem.hlo.text._scanner", function)
    return found


def _plain(found: tuple[list[ComputationText], int]) -> object:
    return [astuple(computation) for computation in found[0]], found[1]


def _assert_same_parts(text: str) -> None:
    found = scanner.match_computations(text, max(0, text.find("\n\n")))
    assert _plain(scanner.scan_computations(text, max(0, text.find("\n\n")))) == _plain(found)
    for computation in found[0]:
        rows = scanner.match_calling_rows(text, *computation.body)
        assert scanner.calling_rows(text, *computation.body) == rows


@needs_native
@given(damaged_texts())
def test_damaged_texts_have_the_same_parts(text: str) -> None:
    _assert_same_parts(text)


@needs_native
@pytest.mark.parametrize("golden", GOLDEN_PROGRAMS[::9], ids=str)
def test_programs_of_xla_have_the_same_parts_and_none_needs_patterns(golden: GoldenProgram) -> None:
    _assert_same_parts(golden.text)
    if golden.text.isascii():
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(scanner, "match_computations")
            assert scanner.scan_module(golden.text) is not None


@needs_native
@pytest.mark.parametrize("name", CALL_ATTRIBUTE_NAMES)
def test_every_attribute_that_calls_is_seen_natively(name: str) -> None:
    text = f"\n  %a = f32[] new(), {name}=%x\n  %b = f32[] new(), {name}s=%x"
    native = _native("calling_rows")
    assert native(text, 0, len(text)) == [("new", f", {name}=%x")]


@needs_native
@pytest.mark.parametrize("function", ["calling_rows", "operand_rows", "body_form"])
def test_kernels_refuse_what_they_were_not_made_for(function: str) -> None:
    native = _native(function)
    with pytest.raises(TypeError):
        native(b"\n  a = f32[] b()", 0, 1)
    for text, start, end in [("é", 0, 1), ("a", -1, 1), ("a", 0, 2), ("a", 1, 0)]:
        with pytest.raises(ValueError, match="not ASCII, or a range"):
            native(text, start, end)
    with pytest.raises(UnicodeEncodeError):
        native("\ud800", 0, 1)


@given(damaged_texts())
def test_a_body_is_cut_into_as_many_rows_as_it_has_lines_or_not_at_all(text: str) -> None:
    found = scanner.scan_module(text)
    assume(found is not None)
    assert found is not None
    for computation in found.computations:
        rows = scanner.instruction_rows(text, *computation.body)
        assert rows is None or len(rows) == scanner.count_lines(text, *computation.body)


def test_the_program_of_these_tests_is_as_xla_prints_it() -> None:
    with in_python():
        module = scanner.scan_module(PROGRAM)
    assert module is not None
    names = [computation.name for computation in module.computations]
    assert names == ["sum", "fused", "nested", "main"]
    assert module.computations[2].execution_thread == "other"
