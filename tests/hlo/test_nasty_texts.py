"""Short texts that kill, hang or bloat XLA's own parser: answered in words, or read, here.

Each is the smallest form found of one crash site of jaxlib 0.12.0.1's text parser.
"""

from __future__ import annotations

import pytest

from hlomem.base.errors import ParseError
from hlomem.hlo import format_module, parse

DEEP = 100_000


def entry(*lines: str, before: str = "") -> str:
    return f"HloModule m\n\n{before}ENTRY e {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


CALLS = "".join(
    f"call{n} {{\n  p = f32[] parameter(0)\n  ROOT r = f32[] call(p), to_apply=call{n - 1}\n}}\n\n"
    for n in range(1, 5000)
)
BOMB = "".join(
    f"call{n} {{\n  p = f32[] parameter(0)\n  a = f32[] call(p), to_apply=call{n - 1}\n"
    f"  ROOT r = f32[] call(a), to_apply=call{n - 1}\n}}\n\n"
    for n in range(1, 40)
)
LEAF = "call0 {\n  ROOT p = f32[] parameter(0)\n}\n\n"
SCALAR = "p = f32[] parameter(0)"
FRAMES = """
FileNames
1 "a"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=1 end_line=1 column=1 end_column=1}

StackFrames
1 {file_location_id=1 parent_frame_id=4}
2 {file_location_id=1 parent_frame_id=3}
3 {file_location_id=1 parent_frame_id=3}

"""

REFUSED = {
    "negative tile": "bf16[]{:T(-8}",
    "negative tile in a module": entry("ROOT p = bf16[]{:T(-8)} parameter(0)"),
    "literal cut off": "f32[]constant(true",
    "constant token cut off": "%c=token[]constant(",
    "tail padding of -1": "%constant.2=f32[]{:L(-1}",
    "tail padding of 0": entry("ROOT p = f32[]{:L(0)} parameter(0)"),
    "layout that is no order": entry("ROOT c = f32[2,2]{7,0} constant({...})"),
    "a gap in parameter numbers": entry("ROOT p = f32[] parameter(1)"),
    "token with dimensions": entry("ROOT p = token[64] parameter(0)"),
    "unknown wrapped computation": entry("ROOT c = f32[] call-start(), to_apply={%nope}"),
    "tuple of 10,000 levels": entry(f"ROOT p = {'(' * 10_000}f32[]{')' * 10_000} parameter(0)"),
    "bare parentheses": entry(f"ROOT p = {'(' * DEEP}"),
    "2^80 parts that are inferred": entry(
        SCALAR, "t0 = tuple(p, p)", *(f"t{n} = tuple(t{n - 1}, t{n - 1})" for n in range(1, 80))
    ),
    "2^80 elements": entry("ROOT p = f32[1099511627776,1099511627776] parameter(0)"),
}

READ = {
    "tuple that is no tuple": entry("ROOT t = f32[] tuple()"),
    "copy of an opaque value": entry("p = f32[] parameter(0)", "ROOT c = opaque[] copy(p)"),
    "compare of tuples": entry(
        "p = (f32[]) parameter(0)", "ROOT c = pred[] compare(p, p), direction=EQ"
    ),
    "tuple as an index": entry(
        "p = f32[8] parameter(0)",
        "q = f32[2] parameter(1)",
        "i = (s32[]) parameter(2)",
        "ROOT d = f32[8] dynamic-update-slice(p, q, i)",
    ),
    "done of nothing": entry(SCALAR, 'ROOT c = f32[8] async-done(p), metadata={op_name="x"}'),
    "tuple of 5,000 levels": entry(f"ROOT p = {'(' * 5_000}f32[]{')' * 5_000} parameter(0)"),
    "origin of 4,000 levels": entry(
        SCALAR, f'ROOT n = f32[] negate(p), origin={{{"(" * 4_000}{{"a"}}{")" * 4_000}}}'
    ),
    "constant of 1 GiB": entry("ROOT c = f32[268435456] constant({...})"),
    "frames in a circle": entry(
        'ROOT p = f32[] parameter(0), metadata={op_name="x" stack_frame_id=1}', before=FRAMES
    ),
    "5,000 calls deep": entry(
        SCALAR, "ROOT r = f32[] call(p), to_apply=call4999", before=LEAF + CALLS
    ),
    "2^40 calls": entry(SCALAR, "ROOT r = f32[] call(p), to_apply=call39", before=LEAF + BOMB),
    "50,000 parameters": entry(*(f"p{n} = f32[] parameter({n})" for n in range(50_000))),
    "tuple of 50,000": entry(
        SCALAR, f"ROOT t = ({', '.join(['f32[]'] * 50_000)}) tuple({', '.join(['p'] * 50_000)})"
    ),
    "10 MB of comment": entry(SCALAR + " // " + "x" * 10_000_000),
    "10 MB of name": entry(SCALAR + f', metadata={{op_name="{"x" * 10_000_000}"}}'),
    "10 MB of newlines": entry(SCALAR + "\n" * 10_000_000),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_place_and_few_words(name: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(REFUSED[name], "nasty.hlo", lazy=False)
    assert str(caught.value).startswith("nasty.hlo:")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", READ)
def test_read_and_printed(name: str) -> None:
    module = parse(READ[name], lazy=False)
    root = module.entry.root
    assert root.metadata is not None
    assert len(root.stack_frames) <= 3
    printed = format_module(module)
    assert format_module(parse(printed)) == printed


def test_origin_nested_deeper_than_brackets_may_be_is_read_or_refused() -> None:
    text = entry(SCALAR, f'ROOT n = f32[] negate(p), origin={{{"(" * DEEP}{{"a"}}{")" * DEEP}}}')
    assert parse(text, lazy=False).entry.root.attributes["origin"].count("(") == DEEP
