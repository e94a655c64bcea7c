"""Print(parse(text)) is the text: for generated modules, and for every module of the corpus."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.base.errors import ParseError
from hlomem.hlo import TextStyle, format_module, parse

if TYPE_CHECKING:
    from pathlib import Path

SHAPES = ["f32[]", "bf16[8,128]{1,0:T(8,128)(2,1)S(1)}", "pred[0]{0}", "(f32[], (s32[2]{0}))"]
ATTRIBUTES = [
    "",
    ", dimensions={0,1}",
    ', metadata={op_name="a, \\"b\\" {(" source_line=1}',
    ', frontend_attributes={a="}",b={"c":[1]}}, backend_config={"x":{"y":[]}}',
]
STYLES = st.builds(
    TextStyle,
    percent=st.booleans(),
    operand_shapes=st.booleans(),
    program_shape=st.booleans(),
    name_after_brace=st.booleans(),
)


@st.composite
def modules(draw: st.DrawFn) -> str:
    """A module of a few computations, each calling earlier ones."""
    layout = "entry_computation_layout={(f32[])->f32[]}"  # without it, XLA did not print the text
    pieces = [f"HloModule m, is_scheduled=true, {layout}\n\n"]
    count = draw(st.integers(1, 4))
    for number in range(count):
        head = "ENTRY " if number == count - 1 else ""
        lines = draw(
            st.lists(st.tuples(st.sampled_from(SHAPES), st.sampled_from(ATTRIBUTES)), max_size=8)
        )
        pieces.append(f"{head}%c{number} {{\n  %c{number}.p = f32[] parameter(0)\n")
        names = [f"c{number}.p"]
        for index, (shape, attributes) in enumerate(lines):
            operands = draw(st.lists(st.sampled_from(names), max_size=7))
            names.append(f"c{number}.i-{index}")
            callee = f", calls=%c{draw(st.integers(0, number - 1))}" if number else ""
            opcode = draw(
                st.sampled_from(["tuple", "custom-thing", "fusion" if callee else "tuple"])
            )
            text = ", ".join(f"%{name}" for name in operands)
            calls = callee if opcode != "tuple" else ""
            pieces.append(f"  %{names[-1]} = {shape} {opcode}({text}){calls}{attributes}\n")
        pieces.append("}\n\n")
    return "".join(pieces)


@settings(max_examples=60, deadline=None)
@given(modules(), STYLES)
def test_printing_and_parsing_are_inverse(text: str, style: TextStyle) -> None:
    printed = format_module(parse(text), style)
    again = parse(printed, lazy=False)
    assert format_module(again) == format_module(again, again.style) == printed


@settings(max_examples=60, deadline=None)
@given(modules(), st.data())
def test_broken_texts_fail_with_a_parse_error_or_parse(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text) - 1))
    noise = data.draw(
        st.sampled_from(["", "{", ")", '"', "\n", "%", ",", "=", "/*", "//", "#9", "\0"])
    )
    broken = text[:place] + noise + text[place + data.draw(st.integers(0, 3)) :]
    with contextlib.suppress(ParseError):
        format_module(parse(broken, lazy=False))


@pytest.mark.parametrize("folder", ["corpus", "real"])
def test_every_module_of_the_corpus(shared: Path, folder: str) -> None:
    paths = sorted((shared / folder).rglob("*.hlo"))
    small = [path for path in paths if path.stat().st_size < 100_000]
    assert small
    different = [path for path in small if not _round_trips(path)]
    assert not different


def _round_trips(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return format_module(parse(text)) == text
