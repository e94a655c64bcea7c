"""Bad text: one error with line, column and words; never a traceback, a hang or a crash."""
# ruff: noqa: E501 - a case is one line

from __future__ import annotations

import re

import pytest

from hlomem.base.errors import ParseError
from hlomem.hlo import parse

PARAMETER = "%p = f32[] parameter(0)"
TUPLE = "%p = (f32[]) parameter(0)"


def module(*lines: str, head: str = "ENTRY %c {") -> str:
    """A module of one computation; its instructions begin at line 4, column 3."""
    return f"HloModule m\n\n{head}\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def check_error(text: str, line: int, column: int, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text, "bad.hlo", lazy=False)
    error = caught.value
    assert (error.line, error.column, error.problem) == (line, column, problem)
    assert str(error).startswith(f"bad.hlo:{line}:{column}: {problem}\n")


@pytest.mark.parametrize(
    ("lines", "line", "column", "problem"),
    [
        ([PARAMETER, "%a = f32[] add(%p, %q)"], 5, 23, "operand `q` is not defined above"),
        (["%a = f32[] negate(%a)"], 4, 22, "operand `a` is not defined above"),
        ([PARAMETER, PARAMETER], 5, 4, "`p` is defined twice in this computation"),
        ([PARAMETER, "%a = f32[] add(%p)"], 5, 18, "`add` takes 2 operands, not 1"),
        ([PARAMETER, "%a = f32[] iota(%p)"], 5, 19, "`iota` takes no operands, not 1"),
        (["%p = f32[] parameter(x)"], 4, 24, "expected the number of the parameter"),
        (["%p = f32[] parameter(1)"], 4, 24, "there is no parameter 0"),
        ([PARAMETER, "%q = f32[] parameter(0)"], 5, 24, "parameter 0 is defined twice"),
        ([f"ROOT {PARAMETER}", "ROOT %a = f32[] negate(%p)"], 5, 3, "a computation has only one ROOT"),
        (["%p = f32[2]{1} parameter(0)"], 4, 15, "layout does not order the dimensions of the shape"),
        (["%p = g32[2] parameter(0)"], 4, 8, "unknown element type `g32`"),
        (["%p = (f32[2], parameter(0)"], 4, 17, "unknown element type `parameter`"),
        ([TUPLE, "%a = f32[] get-tuple-element(%p), index=1"], 5, 37, "`p` has no element 1"),
        ([TUPLE, "%a = f32[] negate(%p#1)"], 5, 23, "`p` has no element 1"),
        ([PARAMETER, "%a = f32[] call(%p), to_apply=%f"], 5, 34, "computation `f` is not defined"),
        ([PARAMETER, "%a = f32[] call(%p), to_apply=%c"], 5, 34, "computation `c` is called before it is defined"),
        ([PARAMETER, "%a = f32[] fusion(%p), kind=kLoop"], 5, 14, "`fusion` needs `calls=`"),
        ([PARAMETER, "%a = f32[] negate(%p), x={0"], 5, 28, "`{` is never closed"),
        ([PARAMETER, "%a = f32[] negate(%p), x={0)"], 5, 30, "unbalanced `)`"),
        ([PARAMETER, '%a = f32[] negate(%p), x="0'], 5, 28, "string is never closed"),
        ([PARAMETER, "%a = f32[] negate(%p), x=1, x=2"], 5, 31, "attribute `x` is given twice"),
        ([PARAMETER, "%a = f32[] negate(%p), x="], 5, 26, "attribute `x` has no value"),
        ([PARAMETER, "%a = f32[] negate(%p), x={[}]"], 5, 30, "unbalanced `}`"),
        ([PARAMETER, "%a = f32[] negate(%p), x={(0]}"], 5, 31, "unbalanced `]`"),
        ([PARAMETER, "%a = f32[] negate(%p), x=}"], 5, 28, "unbalanced `}`"),
        ([PARAMETER, "%a = f32[] negate(%p), x=, y=1"], 5, 26, "attribute `x` has no value"),
        ([PARAMETER, "%a = f32[] negate(%p), x=1, metadata={}, x=2"], 5, 44, "attribute `x` is given twice"),
        ([PARAMETER, "%a = f32[] negate(%p), metadata={op_name=x}"], 5, 44, "expected a string"),
        ([PARAMETER, '%a = f32[] negate(%p), metadata={source_line="x"}'], 5, 48, "expected an integer"),
        ([PARAMETER, '%a = f32[] negate(%p), metadata={op_name="x}'], 5, 44, "string is never closed"),
        ([PARAMETER, '%a = f32[] negate(%p), backend_config={"a":[{]}}'], 5, 48, "unbalanced `]`"),
        ([PARAMETER, '%a = f32[] negate(%p), backend_config={"a":"}'], 5, 46, "string is never closed"),
        ([PARAMETER, "%a = f32[] negate(%p), sharding={devices=[2,2}<=[4]}"], 5, 48, "unbalanced `}`"),
        ([PARAMETER, "%a = f32[] negate(%p), replica_groups={{0,1},{2,3}"], 5, 41, "`{` is never closed"),
        ([PARAMETER, "%a = f32[] negate(%p), frontend_attributes={a=b}"], 5, 47, 'expected `name="value"`'),
        ([PARAMETER, "%a = f32[] negate(%p), output_to_operand_aliasing={{0} (1, {})}"], 5, 54, "expected `{output index}: (operand, {index})`"),
        ([PARAMETER, "%a = f32[] negate(%p), dimensions={0,x}"], 5, 37, "expected integers such as `{0,1}`"),
        ([PARAMETER, "%a = f32[] negate(%p), channel_id=x"], 5, 37, "expected an integer"),
        (["%c = f32[2] constant({1, 2)"], 4, 24, "`{` is never closed"),
        (["%c = f32[2] constant({{1}, {2})"], 4, 24, "`{` is never closed"),
        (["%c = f32[2] constant({1, \"2})"], 4, 28, "string is never closed"),
        (["%p = f32[2,] parameter(0)"], 4, 14, "expected a number"),
        ([TUPLE, "%a = (f32[]) while(%p), condition=%p"], 5, 16, "`while` needs `body=`"),
        ([PARAMETER, "%a = f32[] negate(=)"], 5, 21, "expected an operand"),
        ([PARAMETER, "%a = reshape(%p)"], 5, 8, "the shape of `reshape` is missing and cannot be inferred"),
        ([PARAMETER, "%a = f32[] negate(f32[2] %p)"], 5, 21, "operand `p` does not have this shape"),
        ([PARAMETER, "%a = f32[] negate(%p), control-predecessors={%b}"], 5, 49, "control predecessor `b` is not defined above"),
        ([PARAMETER, "%a = f32[] negate(f32[2]{1} %p)"], 5, 28, "layout does not order the dimensions of the shape"),
        ([PARAMETER, '%a = f32[] call(%p), x="a, to_apply=%f'], 5, 26, "string is never closed"),
        ([TUPLE, "%a = f32[] get-tuple-element(%p), metadata={}, index=x"], 5, 35, "expected an integer"),
        ([PARAMETER, "%a = ((f32[]), f32[], u32[]) slice-start(%p), x=1, x=2"], 5, 54, "attribute `x` is given twice"),
        (["%p = f32[2]{0:D(X)} parameter(0)"], 4, 19, "expected a dimension level type: D, C, S or H"),
        (["%p = f32[2]{0:T(8} parameter(0)"], 4, 20, "expected `)` in a layout"),
        ([PARAMETER, "what is this"], 5, 3, "not an instruction"),
        ([], 3, 8, "computation `c` has no instructions"),
    ],
)  # fmt: skip
def test_instruction_errors_point_at_the_cause(
    lines: list[str], line: int, column: int, problem: str
) -> None:
    check_error(module(*lines), line, column, problem)


def test_numbers_of_parameters_may_be_written_with_zeros_and_blanks() -> None:
    parsed = parse(module("%a = f32[2] parameter( 1 )", "%b = f32[3] parameter(00)"), lazy=False)
    assert [parameter.name for parameter in parsed.entry.parameters] == ["b", "a"]


def test_the_index_of_an_element_need_not_come_first() -> None:
    element = "%a = f32[] get-tuple-element(%p), metadata={}, index=0"
    assert parse(module(TUPLE, element), lazy=False).entry.root.tuple_index == 0


def test_two_entries() -> None:
    text = module(PARAMETER) + "\nENTRY %d {\n  %p = f32[] parameter(0)\n}\n"
    check_error(text, 7, 8, "a module has only one ENTRY")


def test_computation_defined_twice() -> None:
    text = module(PARAMETER, head="%c {") + "\nENTRY %c {\n  %p = f32[] parameter(0)\n}\n"
    check_error(text, 7, 8, "computation `c` is defined twice")


@pytest.mark.parametrize(
    ("head", "column", "problem"),
    [
        ("ENTRY %c (p: f32[] -> f32[] {", 19, "expected `,` or `)`"),
        ("ENTRY %c (p f32[]) -> f32[] {", 11, "expected `name: shape`"),
        ("ENTRY %c (p: f32[]) f32[] {", 19, "expected `->`"),
        ("ENTRY %c (p: g32[]) -> f32[] {", 14, "unknown element type `g32`"),
        ("ENTRY %c (p: f32[]) -> f32[] x {", 29, "expected `{`"),
    ],
)
def test_heads_are_checked(head: str, column: int, problem: str) -> None:
    check_error(module(PARAMETER, head=head), 3, column, problem)


@pytest.mark.parametrize(
    ("header", "column", "problem"),
    [
        (", x={", 16, "`{` is never closed"),
        (", is_scheduled=", 14, "attribute `is_scheduled` has no value"),
        (", input_output_alias={ {0}: 0 }", 35, "expected `{output index}: (parameter, {index}, may-alias)`"),
        (", entry_computation_layout={(f32[2]{1})->f32[]}", 48, "layout does not order the dimensions of the shape"),
        (", replica_count=many", 28, "expected an integer"),
    ],
)  # fmt: skip
def test_headers_are_checked(header: str, column: int, problem: str) -> None:
    check_error(module(PARAMETER).replace("m\n", f"m{header}\n", 1), 1, column, problem)


def test_result_shape_of_the_head_must_be_the_roots() -> None:
    text = module(PARAMETER, head="ENTRY %c (p: f32[]) -> f32[4] {")
    check_error(text, 3, 24, "computation `c` does not return this shape")


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("", 1, 1, "expected `HloModule`"),
        ("\n  ENTRY %c {}", 2, 10, "computation `c` has no instructions"),
        ("%z = f32[2] add(f32[2] %a, %b)", 1, 28, "operand `b` is not defined above"),
        ("what is this", 1, 1, "expected `HloModule`"),
        ("HloModule", 1, 1, "the module has no name"),
        ("HloModule m\n", 1, 1, "the module has no computations"),
        ("HloModule m\n\nENTRY %c {\n  %p = f32[] parameter(0)\n", 3, 10, "`{` is never closed"),
        (module(PARAMETER) + "}\n", 6, 1, "unbalanced `}`"),
        (module(PARAMETER) + "\nhello\n", 7, 1, "expected a computation or the end of the text"),
        (module(PARAMETER, "%a = f32[] negate(\0%p)"), 5, 21, "NUL byte in text"),
    ],
)
def test_module_errors(text: str, line: int, column: int, problem: str) -> None:
    check_error(text, line, column, problem)


def test_errors_in_unusual_layouts_point_at_the_original_place() -> None:
    text = """\
HloModule m

// comment
ENTRY c {
  p = f32[] parameter(0)

  ROOT a = f32[]
     add(p,
         q)
}
"""
    check_error(text, 9, 10, "operand `q` is not defined above")


@pytest.mark.parametrize(
    ("asked", "line", "problem"),
    [
        ("outline", "ROOT %n = g32[] negate(%q)", "unknown element type `g32`"),
        ("calls", "ROOT %n = f32[] call(%q), to_apply=%g", "computation `g` is not defined"),
        ("calls", 'ROOT %n = f32[] call(%q), x="a, to_apply=%g', "string is never closed"),
        ("calls", "ROOT %n = f32[] call-start(%q), to_apply=%g", "computation `g` is not defined"),
    ],
)
def test_what_is_asked_of_an_unread_body_that_is_wrong_says_so(
    asked: str, line: str, problem: str
) -> None:
    fused = f"%f {{\n  %q = f32[] parameter(0)\n  {line}\n}}\n\n"
    called = f"{PARAMETER}\n  ROOT %a = f32[] fusion(%p), kind=kLoop, calls=%f"
    body = parse(f"HloModule m\n\n{fused}ENTRY %c {{\n  {called}\n}}\n").computations[0]
    with pytest.raises(ParseError, match=re.escape(problem)) as caught:
        getattr(body, asked)()
    assert caught.value.line == 5


def test_errors_in_fused_bodies_wait_until_the_body_is_read() -> None:
    fused = "%f {\n  %q = f32[] parameter(0)\n  ROOT %n = f32[] negate(%x)\n}\n"
    text = f"""\
HloModule m

{fused}
ENTRY %c {{
  {PARAMETER}
  ROOT %a = f32[] fusion(%p), kind=kLoop, calls=%f
}}
"""
    parsed = parse(text)
    assert parsed.computations[0].instruction_count == 2
    with pytest.raises(ParseError, match="operand `x` is not defined above"):
        parsed.validate()


@pytest.mark.parametrize(
    "text",
    [
        module(f"%p = {'(' * 10_000}f32[]{')' * 10_000} parameter(0)"),
        module(f"%p = {'(' * 10_000}f32[]{')' * 9_999} parameter(0)"),
        module(PARAMETER, f"%a = f32[] negate(%p), x={'{' * 10_000}{'}' * 9_999}"),
        module("(" * 20_000_000),
        module("x" * 20_000_000),
        module(PARAMETER, "%a = f32[] negate(%p" + "), a" * 100_000),
        module(PARAMETER, '%a = f32[] negate(%p), m="' + '\\"' * 1_000_000),
        module(TUPLE, "%a = f32[] negate(%p" + "#0" * 100_000 + ")"),
        module("%a = (" + ") add(" * 100_000),
        module("%a = (f32[]) a(" + ") a(" * 100_000 + "\x01"),
        module("%a = f32[] add(" + "(" * 9_000 + ")" * 100_000),
    ],
    ids=[
        "deep tuple",
        "open tuple",
        "deep braces",
        "parentheses",
        "word",
        "commas",
        "quotes",
        "#",
        "many opcodes",
        "many operands",
        "many ends",
    ],
)
def test_huge_and_deep_texts_get_a_short_error(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text, lazy=False)
    assert len(str(caught.value)) < 1000


def test_deep_brackets_that_close_are_fine() -> None:
    deep = "{" * 5_000 + "}" * 5_000
    parsed = parse(module(PARAMETER, f"%a = f32[] negate(%p), backend_config={deep}"), lazy=False)
    assert parsed.entry.root.attributes == {"backend_config": deep}
    assert parsed.entry.root.backend_config == deep


def test_a_callee_is_all_that_stands_in_its_attribute() -> None:
    text = f"""\
HloModule m

%f {{
  {PARAMETER}
  ROOT %n = f32[] negate(%p)
}}

ENTRY %c {{
  {PARAMETER}
  ROOT %a = f32[] call(%p), to_apply=%f((,))
}}
"""
    with pytest.raises(ParseError, match=r"computation `f\(\(` is not defined"):
        parse(text, lazy=False)
