"""Blanks, comments, the order of computations and omitted shapes do not change a module."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.base.source import Source
from hlomem.hlo import canonicalize
from hlomem.hlo.opcodes import CALL_IN_TEXT, NAME_IN_TEXT
from hlomem.hlo.text.freeform.tokens import Tokens
from tests.hlo.text.freeform.goldens import PRINTED

BLANKS = st.sampled_from([" ", "\n", "\t", "  ", " /* a, {( */ ", " // ) }\n", "\n\n /*index=5*/"])
_COMPUTATION = re.compile(r"^(?:ENTRY )?%.*?^\}[^\n]*\n", re.MULTILINE | re.DOTALL)
_KEPT = re.compile(r'"|\.\.\.')
"""Texts with strings are left alone: blanks in them are their own; and so are `{...}` of tuples."""
_CHANGED = ("a condition of two loops", "computations nobody calls", "floats")
"""Prints that depend on the order of the text, or that XLA itself reads as another module."""
STABLE = sorted(
    name for name, text in PRINTED.items() if not _KEPT.search(text) and name not in _CHANGED
)


def tokens_of(text: str) -> list[str]:
    """The tokens of a text."""
    tokens = Tokens(Source("x", text))
    pieces: list[str] = []
    while tokens.kind != "end":
        pieces.append(text[tokens.start : tokens.stop])
        tokens.advance()
    return pieces


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(STABLE), st.data())
def test_blanks_and_comments_between_tokens(name: str, data: st.DataObject) -> None:
    pieces = tokens_of(PRINTED[name])
    gaps = data.draw(st.lists(BLANKS, min_size=len(pieces), max_size=len(pieces)))
    text = "".join(piece + gap for piece, gap in zip(pieces, gaps, strict=True))
    assert canonicalize(text) == PRINTED[name]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(STABLE), st.randoms(use_true_random=False))
def test_any_order_with_callees_first(name: str, random: object) -> None:
    text = PRINTED[name]
    parts = _COMPUTATION.findall(text)
    header = text[: text.index(parts[0])]
    random.shuffle(parts)  # type: ignore[attr-defined]
    by_name = {part.removeprefix("ENTRY ").partition(" ")[0][1:]: part for part in parts}
    order: dict[str, str] = {}
    pending = list(by_name)
    while pending:
        calls = CALL_IN_TEXT.finditer(by_name[pending[0]])
        callees = [name for call in calls for name in NAME_IN_TEXT.findall(call[2] or call[3])]
        needed = [callee for callee in callees if callee not in order]
        if needed:
            pending = [*needed, *pending]
        else:
            done = pending.pop(0)
            order[done] = by_name[done]
    assert canonicalize(header + "\n".join(order.values())) == text


UNARY = ["negate", "abs", "cosine", "floor"]
BINARY = ["add", "multiply", "maximum"]
SHAPES = ["f32[4]{0}", "f32[2,3]{0,1}", "bf16[<=8]{0}", "f32[]"]


@st.composite
def programs(draw: st.DrawFn) -> list[str]:
    """Lines whose shapes all follow from those of the parameters."""
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
    lines = [f"%p{n} = {shape} parameter({n})" for n, shape in enumerate(shapes)]
    values = [(f"%p{n}", shape) for n, shape in enumerate(shapes)]
    for number in range(draw(st.integers(1, 8))):
        name, shape = draw(st.sampled_from(values))
        others = [other for other, its in values if its == shape]
        made = f"%v{number}"
        kind = draw(st.sampled_from(["unary", "binary", "compare", "transpose"]))
        if kind == "unary":
            lines.append(f"{made} = {draw(st.sampled_from(UNARY))}({name})")
        elif kind == "binary":
            other = draw(st.sampled_from(others))
            lines.append(f"{made} = {draw(st.sampled_from(BINARY))}({name}, {other})")
        elif kind == "compare" and "pred" not in shape:
            lines.append(f"{made}c = compare({name}, {name}), direction=LT")
            lines.append(f"{made} = select({made}c, {name}, {name})")
        else:
            lines.append(f"{made} = copy({name})")
        values.append((made, shape))
    results = ", ".join(name for name, _ in values)
    return [*lines, f"ROOT %t = tuple({results})"]


def module(lines: list[str]) -> str:
    return "HloModule m\n\nENTRY %e {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


@settings(max_examples=100, deadline=None)
@given(programs(), st.data())
def test_shapes_may_be_left_out_where_they_follow(lines: list[str], data: st.DataObject) -> None:
    whole = canonicalize(module(lines))
    rows = [row for row in whole.split("\n") if row.startswith("  ")]
    dropped = [
        re.sub(r" = (?:\(.*?\)(?= tuple)|\S+) ", " = ", row)
        if " parameter(" not in row and data.draw(st.booleans())
        else row
        for row in rows
    ]
    assert canonicalize(module([row.strip() for row in dropped])) == whole


@settings(max_examples=60, deadline=None)
@given(programs())
def test_instructions_may_be_nested(lines: list[str]) -> None:
    """An instruction with one user may be written instead of its name."""
    parsed = {line.removeprefix("ROOT ").partition(" = ")[0]: line for line in lines}
    for name, line in reversed(parsed.items()):
        uses = [len(re.findall(rf"{name}\b", text.partition(" = ")[2])) for text in parsed.values()]
        has_attributes = "), " in line or "parameter" in line
        if sum(uses) == 1 and re.search(rf"{name}\b", parsed["%t"]) and not has_attributes:
            parsed["%t"] = re.sub(rf"{name}\b", line.partition(" = ")[2], parsed["%t"])
            parsed[name] = ""
    text = module([line for line in parsed.values() if line])
    assert without_names(canonicalize(text)) == without_names(canonicalize(module(lines)))


def without_names(text: str) -> str:
    return re.sub(r"%(?:[\w\-]+\.anon[.\d]*|v\d+\b)", "%_", text)


@pytest.mark.parametrize(
    "name", ["inline operands", "inline computation", "short async operations"]
)
def test_tokens_are_cut_as_the_lexer_cuts_them(name: str) -> None:
    pieces = tokens_of(PRINTED[name])
    assert "".join(pieces) == re.sub(r"\s+|/\*.*?\*/", "", PRINTED[name])
