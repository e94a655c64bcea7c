"""Bodies linked natively and in Python: the same instructions, or the same error."""

from __future__ import annotations

import pytest
from hypothesis import example, given

from hlomem.base.errors import ParseError
from hlomem.hlo.ir import HloInstruction
from hlomem.hlo.text import body, reader
from hlomem.hlo.text.parser import parse
from tests.golden_programs import GOLDEN_PROGRAMS, GoldenProgram
from tests.hlo.forms import FORMS
from tests.hlo.native import PROGRAM, damaged_texts, in_python, needs_native
from tests.hlo.structure import structure


def _reading(text: str) -> object:
    """All that a text holds, or what is wrong with it."""
    try:
        module = parse(text)
        lazily = [(found.is_fused, found.is_open) for found in module.computations]
        calls = [[call.opcode for call in found.calls()] for found in module.computations]
        return lazily, calls, structure(module)
    except ParseError as error:
        return str(error)


def _assert_same_reading(text: str) -> None:
    native = _reading(text)
    with in_python():
        assert native == _reading(text)


@needs_native
@given(damaged_texts())
@example(PROGRAM.replace("%x, %f.1}", "%z}"))
@example(PROGRAM.replace("parameter(1)", "parameter(00)"))
@example(PROGRAM.replace("%one = ", "%x = "))
@example(PROGRAM.replace("index=1,", "index=2,"))
@example(PROGRAM.replace("add(%y, %f.1)", "add(%y)"))
@example(PROGRAM.replace("add(%y, %f.1)", "add(%y, f.1)"))
@example(PROGRAM.replace("{a = 1 : i64}", "{a = b c(}"))
@example(PROGRAM.replace("fusion(%x, %one)", "fusion(%x, %one,)"))
@example(PROGRAM.replace("calls=%fused,", "calls=%main,"))
@example(PROGRAM.replace("constant(1)", "constant({ 1"))
@example(PROGRAM.replace("f32[8]{0} add", "f32[8]{1} add"))
@example(PROGRAM.replace(" add(%y", " slice-start(%y"))
def test_damaged_programs_read_the_same(text: str) -> None:
    _assert_same_reading(text)


@needs_native
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_text_reads_the_same(form: str) -> None:
    _assert_same_reading(FORMS[form])


@needs_native
@pytest.mark.parametrize("golden", GOLDEN_PROGRAMS[::9], ids=str)
def test_programs_of_xla_read_the_same(golden: GoldenProgram) -> None:
    _assert_same_reading(golden.text)


@needs_native
def test_a_program_as_xla_prints_it_is_linked_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(reader, "link_body")
    module = parse(PROGRAM)
    module.open_all()
    assert [len(found.instructions) for found in module.computations] == [3, 6, 4, 8]


@needs_native
def test_many_operands_are_linked_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(reader, "link_body")
    count = 20_000
    rows = "".join(f"  p{i} = f32[] parameter({i})\n" for i in range(count))
    names = ", ".join(f"p{i}" for i in range(count))
    shape = ", ".join(["f32[]"] * count)
    module = parse(f"HloModule m\n\nENTRY e {{\n{rows}  ROOT t = ({shape}) tuple({names})\n}}\n")
    assert module.entry.root.operands == tuple(module.entry.parameters)


@needs_native
def test_the_linker_refuses_what_it_was_not_made_for() -> None:
    link, text = body._link, "\n  a = f32[] parameter(0)"
    assert link is not None
    computation = parse(PROGRAM).entry
    tables: tuple[dict[str, object], ...] = (body._KINDS, {}, {})  # type: ignore[assignment]
    right = (text, 0, len(text), *tables, HloInstruction, computation, 1)
    with pytest.raises(KeyError):
        link(*right)  # no shape is known
    with pytest.raises(TypeError):
        link(text.encode(), *right[1:])
    with pytest.raises(TypeError):
        link(*right[:3], None, *right[4:])
    with pytest.raises(ValueError, match="not ASCII, or a range"):
        link(text, 0, len(text) + 1, *right[3:])
