"""Attribute texts to values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hlomem.hlo.text import attributes as attr


def test_split_respects_brackets_and_strings() -> None:
    text = ', kind=kLoop, slice={[0:1], [2:3]}, metadata={op_name="a, b=\\"c\\"" source_line=3}'
    text += ", dim_labels=b0f->bf0"
    assert attr.split_attributes(text) == {
        "kind": "kLoop",
        "slice": "{[0:1], [2:3]}",
        "metadata": '{op_name="a, b=\\"c\\"" source_line=3}',
        "dim_labels": "b0f->bf0",
    }


def test_split_of_nothing() -> None:
    assert attr.split_attributes("") == {}


def test_split_of_brackets_deeper_than_any_pattern() -> None:
    deep = "{" * 100 + "1" + "}" * 100
    assert attr.split_attributes(f", a={deep}, b=2") == {"a": deep, "b": "2"}


@pytest.mark.parametrize(
    ("text", "start", "problem"),
    [
        (", a=1, a=2", 7, "attribute `a` is given twice"),
        (", a=", 2, "attribute `a` has no value"),
        (", a={1", 4, "`{` is never closed"),
        (", a=1}", 5, "unbalanced `}`"),
        (', a="1', 4, "string is never closed"),
        (", a=1, %b", 5, "expected `, name=value`"),
    ],
)
def test_split_says_what_is_wrong(text: str, start: int, problem: str) -> None:
    with pytest.raises(attr.TextProblem) as caught:
        attr.split_attributes(text)
    assert (caught.value.start, caught.value.problem) == (start, problem)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("\\'a\\'\\n\\\\", "'a'\n\\"),
        ("caf\\303\\251", "café"),
        ("\\x41é", "Aé"),
        ("\\x41\\n'", "A\n'"),
    ],
)
def test_unescape(text: str, value: str) -> None:
    assert attr.unescape(text) == value


def test_metadata_keeps_what_it_knows() -> None:
    text = (
        '{op_type="add" op_name="f/add" source_file="a.py" source_line=3 stack_frame_id=7 '
        'scheduling_name="x" profile_type={1}}'
    )
    metadata = attr.parse_metadata(text)
    assert (metadata.op_type, metadata.op_name, metadata.scheduling_name) == ("add", "f/add", "x")
    assert (metadata.source_line, metadata.stack_frame_id) == (3, 7)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":[1,{"b":null}]}', {"a": [1, {"b": None}]}),
        ('"{\\"a\\":1}"', {"a": 1}),
        ('"not json"', "not json"),
        ("{mode = 86 : ui8}", "{mode = 86 : ui8}"),
    ],
)
def test_backend_config(text: str, value: object) -> None:
    assert attr.parse_backend_config(text) == value


def test_string_map() -> None:
    text = '{a="1",b.c={"x":2},_xla="\\"q\\""}'
    assert attr.parse_string_map(text) == {"a": "1", "b.c": '{"x":2}', "_xla": '"q"'}


def test_operand_aliasing() -> None:
    (first, second) = attr.parse_operand_aliasing("{{}: (0, {}), {1,0}: (3, {2})}")
    assert (first.output_index, first.operand_number) == ((), 0)
    assert (second.output_index, second.operand_number, second.operand_index) == ((1, 0), 3, (2,))


def test_integers() -> None:
    assert attr.parse_integers("{0,-1, 22}") == (0, -1, 22)
    assert attr.parse_integers("{}") == ()
    with pytest.raises(attr.TextProblem, match="expected integers"):
        attr.parse_integers("{a}")


@pytest.mark.parametrize(
    ("parse", "text", "problem"),
    [
        (attr.parse_metadata, "op_name", "expected braces"),
        (
            attr.parse_program_shape,
            "{f32[]->f32[]}",
            "expected `{(parameter shapes)->result shape}`",
        ),
        (attr.parse_program_shape, "{(f32[])}", "expected `{(parameter shapes)->result shape}`"),
        (attr.parse_program_shape, "(f32[])->f32[]", "expected `{(parameter shapes)"),
        (attr.parse_program_shape, "{(f32[)->f32[]}", "expected a number"),
    ],
)
def test_values_of_another_form_are_refused(
    parse: Callable[[str], object], text: str, problem: str
) -> None:
    with pytest.raises(attr.TextProblem) as caught:
        parse(text)
    assert caught.value.problem.startswith(problem)
    assert 0 <= caught.value.start < caught.value.end <= len(text)


@pytest.mark.parametrize(
    "text",
    [
        '{op_name="a/b" source_file="t.py" source_line=3 stack_frame_id=7}',
        '{op_type="x" op_name="a" source_line=1 source_end_line=2 source_column=3}',
        '{op_name="a\\"b" source_line=3}',
        '{op_name="a" scheduling_name="s"}',
        '{op_name=""}',
        "{}",
    ],
)
def test_metadata_reads_alike_alone_and_in_a_line(text: str) -> None:
    whole = attr.parse_metadata(text)
    line = f", metadata={text}, backend_config=1"
    assert attr.read_metadata(line) == whole
    assert attr.read_op_name(line, 2) == whole.op_name
    fields = dict(item.split("=") for item in text.strip("{}").split() if item[-1].isdigit())
    assert {name: str(getattr(whole, name)) for name in fields} == fields


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('x, kernel_metadata={op_name="other"}, metadata={op_name="f"}', "f"),
        ('x, metadata={op_name="f" source_file=bare source_line=3}', "f"),
        ('x, metadata={op_name="f" source_fi', "f"),
        ("x", ""),
    ],
)
def test_metadata_is_read_as_far_as_it_goes(line: str, name: str) -> None:
    found = attr.read_metadata(line)
    assert (found.op_name, found.source_file) == (name, "")
