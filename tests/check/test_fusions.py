"""What a fusion may read of an operand it writes over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem import hlo
from hlomem.base.native import kernel
from hlomem.check.fusions import Form, blur, find_stray_read, form_of, updated_operands

MODULE = """HloModule m, is_scheduled=true

sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}

inner {
  x1 = f32[8,1]{1,0} parameter(0)
  ROOT n1 = f32[8,1]{1,0} negate(x1)
}

turned {
  x2 = f32[8,1]{1,0} parameter(0)
  ROOT n2 = f32[8,1]{1,0} reverse(x2), dimensions={0}
}

both {
  x3 = f32[8,1]{1,0} parameter(0)
  ROOT n3 = (f32[8,1]{1,0}, f32[8,1]{1,0}) tuple(x3, x3)
}

moved {
  x4 = f32[8,1]{1,0} parameter(0)
  zero4 = s32[] constant(0)
  one4 = s32[] constant(1)
  w4 = f32[1,1]{1,0} slice(x4), slice={[0:1], [0:1]}
  ROOT n4 = f32[8,1]{1,0} dynamic-update-slice(x4, w4, one4, zero4)
}

fused {
  p = f32[8,1]{1,0} parameter(0)
  q = f32[8,1]{1,0} parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  one = s32[] constant(1)
  zero = f32[] constant(0)
BODY
}

ENTRY e {
  a = f32[8,1]{1,0} parameter(0)
  b = f32[8,1]{1,0} parameter(1)
  n = s32[] parameter(2)
  ROOT f = SHAPE fusion(a, b, n), kind=kLoop, calls=fused
}
"""


def fusion_of(body: str, shape: str = "f32[8,1]{1,0}") -> hlo.HloInstruction:
    """A fusion of p and q (f32[8,1]), i and some constants."""
    lines = "\n".join(f"  {line.strip()}" for line in body.strip().split("\n"))
    return hlo.parse(MODULE.replace("BODY", lines).replace("SHAPE", shape)).entry.root


RIGHT = {
    "element-wise": "ROOT r = f32[8,1]{1,0} add(p, q)",
    "not read": "ROOT r = f32[8,1]{1,0} add(q, q)",
    "through a tuple": """t = (f32[8,1]{1,0}, f32[8,1]{1,0}) tuple(q, p)
        ROOT g = f32[8,1]{1,0} get-tuple-element(t), index=1""",
    "a dimension of one": """v = f32[8]{0} reduce(p, zero), dimensions={1}, to_apply=sum
        ROOT r = f32[8,1]{1,0} reshape(v)""",
    "update elsewhere": """w = f32[2,1]{1,0} slice(q), slice={[0:2], [0:1]}
        ROOT r = f32[8,1]{1,0} dynamic-update-slice(p, w, i, z)""",
    "update of its own window": """
        w = f32[2,1]{1,0} dynamic-slice(p, i, z), dynamic_slice_sizes={2,1}
        n = f32[2,1]{1,0} negate(w)
        ROOT r = f32[8,1]{1,0} dynamic-update-slice(p, n, i, z)""",
    "update of one element": """w = f32[1,1]{1,0} dynamic-slice(p, i, z), dynamic_slice_sizes={1,1}
        ROOT r = f32[8,1]{1,0} dynamic-update-slice(p, w, one, z)""",
    "update of one element of another shape": """v = f32[2,4]{1,0} bitcast(p)
        w = f32[1,1]{1,0} dynamic-slice(v, z, i), dynamic_slice_sizes={1,1}
        u = f32[2,4]{1,0} dynamic-update-slice(v, w, i, z)
        ROOT r = f32[8,1]{1,0} bitcast(u)""",
    "update of everything": "ROOT r = f32[8,1]{1,0} dynamic-update-slice(q, p, z, z)",
    "transpose that moves nothing": """v = f32[1,8]{0,1} transpose(p), dimensions={1,0}
        b = f32[8,1]{1,0} bitcast(v)
        ROOT r = f32[8,1]{1,0} add(b, q)""",
    "another layout and back": """v = f32[2,4]{1,0} bitcast(p)
        t = f32[2,4]{0,1} copy(v)
        n = f32[2,4]{0,1} negate(t)
        u = f32[2,4]{1,0} copy(n)
        ROOT r = f32[8,1]{1,0} bitcast(u)""",
    "pad by nothing": "ROOT r = f32[8,1]{1,0} pad(p, zero), padding=0_0x0_0",
    "a fusion inside": "ROOT r = f32[8,1]{1,0} fusion(p), kind=kLoop, calls=inner",
    "scatter": """w = s32[1]{0} broadcast(i), dimensions={}
        u = f32[1,1]{1,0} slice(q), slice={[0:1], [0:1]}
        ROOT r = f32[8,1]{1,0} scatter(p, w, u), to_apply=sum""",
}
WRONG = {
    "reverse": "ROOT r = f32[8,1]{1,0} reverse(p), dimensions={0}",
    "after reverse": """v = f32[8,1]{1,0} reverse(p), dimensions={0}
        ROOT r = f32[8,1]{1,0} reverse(v), dimensions={0}""",
    "broadcast of a sum": """v = f32[] reduce(p, zero), dimensions={0,1}, to_apply=sum
        ROOT r = f32[8,1]{1,0} broadcast(v), dimensions={}""",
    "update of another window": """w = f32[2,1]{1,0} slice(p), slice={[0:2], [0:1]}
        ROOT r = f32[8,1]{1,0} dynamic-update-slice(p, w, one, z)""",
    "update of a computed window": """
        w = f32[2,1]{1,0} dynamic-slice(p, i, z), dynamic_slice_sizes={2,1}
        ROOT r = f32[8,1]{1,0} dynamic-update-slice(p, w, z, z)""",
    "more than an update of one element": """
        w = f32[1,1]{1,0} dynamic-slice(p, i, z), dynamic_slice_sizes={1,1}
        u = f32[8,1]{1,0} dynamic-update-slice(p, w, one, z)
        ROOT r = f32[8,1]{1,0} negate(u)""",
    "update of one element of another operand": """
        w = f32[1,1]{1,0} dynamic-slice(p, i, z), dynamic_slice_sizes={1,1}
        ROOT r = f32[8,1]{1,0} dynamic-update-slice(q, w, one, z)""",
    "a fusion inside that moves one element": """
        v = f32[8,1]{1,0} fusion(p), kind=kLoop, calls=moved
        ROOT r = f32[8,1]{1,0} negate(v)""",
    "update of what was reversed": """v = f32[8,1]{1,0} reverse(p), dimensions={0}
        ROOT r = f32[8,1]{1,0} dynamic-update-slice(q, v, z, z)""",
    "slice of a slice": """v = f32[4,1]{1,0} slice(p), slice={[0:4], [0:1]}
        w = f32[2,1]{1,0} slice(v), slice={[0:2], [0:1]}
        ROOT r = f32[8,1]{1,0} dynamic-update-slice(p, w, z, z)""",
    "transpose of a square": """v = f32[4,2,1]{2,1,0} bitcast(p)
        t = f32[2,4,1]{2,1,0} transpose(v), dimensions={1,0,2}
        ROOT r = f32[8,1]{1,0} bitcast(t)""",
    "broadcast that transposes": """v = f32[2,4]{1,0} bitcast(p)
        t = f32[4,2]{1,0} broadcast(v), dimensions={1,0}
        ROOT r = f32[8,1]{1,0} bitcast(t)""",
    "another layout": """v = f32[2,4]{1,0} bitcast(p)
        t = f32[2,4]{0,1} copy(v)
        ROOT r = f32[8,1]{1,0} bitcast(t)""",
    "another layout and back, reversed between": """v = f32[2,4]{1,0} bitcast(p)
        t = f32[2,4]{0,1} copy(v)
        n = f32[2,4]{0,1} reverse(t), dimensions={0}
        u = f32[2,4]{1,0} copy(n)
        ROOT r = f32[8,1]{1,0} bitcast(u)""",
    "another layout and back, beside one that does not come back": """v = f32[2,4]{1,0} bitcast(p)
        t = f32[2,4]{0,1} copy(v)
        b = f32[2,4]{0,1} bitcast(p)
        n = f32[2,4]{0,1} add(t, b)
        u = f32[2,4]{1,0} copy(n)
        ROOT r = f32[8,1]{1,0} bitcast(u)""",
    "pad that shifts": "ROOT r = f32[8,1]{1,0} pad(p, zero), padding=1_-1x0_0",
    "a part of it summed": """v = f32[4,2]{1,0} bitcast(p)
        t = f32[4]{0} reduce(v, zero), dimensions={1}, to_apply=sum
        u = f32[4,2]{1,0} broadcast(t), dimensions={0}
        ROOT r = f32[8,1]{1,0} bitcast(u)""",
    "a fusion inside that reverses": """
        ROOT r = f32[8,1]{1,0} fusion(p), kind=kLoop, calls=turned""",
    "a fusion inside with two results": """
        v = (f32[8,1]{1,0}, f32[8,1]{1,0}) fusion(p), kind=kLoop, calls=both
        ROOT r = f32[8,1]{1,0} get-tuple-element(v), index=0""",
    "a window as it is": "ROOT r = f32[2,1]{1,0} slice(p), slice={[0:2], [0:1]}",
}


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT.keys())
def test_reads_at_the_element_written(body: str) -> None:
    assert find_stray_read(fusion_of(body), 0, ()) is None


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG.keys())
def test_reads_elsewhere(body: str) -> None:
    assert find_stray_read(fusion_of(body), 0, ()) is not None


def test_each_output_of_a_fusion_is_judged_alone() -> None:
    body = """v = f32[8,1]{1,0} reverse(p), dimensions={0}
        s = f32[8,1]{1,0} negate(p)
        ROOT t = (f32[8,1]{1,0}, f32[8,1]{1,0}) tuple(v, s)"""
    fusion = fusion_of(body, "(f32[8,1]{1,0}, f32[8,1]{1,0})")
    assert find_stray_read(fusion, 0, (0,)) is not None
    assert find_stray_read(fusion, 0, (1,)) is None
    assert find_stray_read(fusion, 9, (1,)) is None


def test_an_output_that_is_no_tuple_element_is_not_judged() -> None:
    fusion = fusion_of("ROOT r = f32[8,1]{1,0} reverse(p), dimensions={0}")
    assert find_stray_read(fusion, 0, (0,)) is None


def test_updates_name_the_operand_they_write_into() -> None:
    body = """w = f32[2,1]{1,0} slice(q), slice={[0:2], [0:1]}
        u = f32[8,1]{1,0} dynamic-update-slice(p, w, i, z)
        ROOT t = (f32[8,1]{1,0}, f32[8,1]{1,0}) tuple(q, u)"""
    assert updated_operands(fusion_of(body, "(f32[8,1]{1,0}, f32[8,1]{1,0})")) == [((1,), 0)]
    alone = body.replace("u =", "ROOT u =").partition("ROOT t")[0]
    assert updated_operands(fusion_of(alone)) == [((), 0)]


def test_a_window_at_places_in_one_array_is_equal_to_no_other() -> None:
    body = """
        v = s32[2]{0} iota(), iota_dimension=0
        w = f32[2,1]{1,0} dynamic-slice(p, v), dynamic_slice_sizes={2,1}
        ROOT r = f32[8,1]{1,0} dynamic-update-slice(p, w, v)"""
    assert find_stray_read(fusion_of(body), 0, ()) is not None


def _form_of(body: str) -> Form | None:
    return form_of(fusion_of(body))


def test_bodies_of_one_form_differ_in_names_and_origins_only() -> None:
    one = """%m = f32[8,1]{1,0} negate(p), metadata={op_name="a"}
        ROOT %r = f32[8,1]{1,0} add(%m, q)"""
    other = """%m.7 = f32[8,1]{1,0} negate(p), metadata={op_name="b" source_line=3}
        ROOT %s.9 = f32[8,1]{1,0} add(%m.7, q)"""
    assert _form_of(one) == _form_of(other)


def test_bodies_wired_otherwise_are_of_other_forms() -> None:
    lines = "%k = f32[8,1]{1,0} negate(p)\n%m = f32[8,1]{1,0} negate(q)\nROOT %r = "
    add = "f32[8,1]{1,0} subtract("
    assert _form_of(f"{lines}{add}%k, %m)") != _form_of(f"{lines}{add}%m, %k)")


def test_a_body_that_calls_a_fusion_has_no_form() -> None:
    assert _form_of("ROOT %r = f32[8,1]{1,0} fusion(p), kind=kLoop, calls=sum") is None


blur_natively = kernel("hlomem.check._form", "blur")
needs_native = pytest.mark.skipif(blur_natively is None, reason="_form.c was not built")
PIECES = ["%", "%a", "%b.1", "%a-b_", ", metadata={", "}", "{", 'op_name="x"', "\n", ",", " ", "é"]


@needs_native
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=40).map("".join))
def test_the_native_form_of_any_text_is_that_of_the_patterns(text: str) -> None:
    if text.isascii():
        assert blur_natively(text) == blur(text)
    else:
        with pytest.raises(ValueError, match=r"ASCII|surrogates"):
            blur_natively(text)


@needs_native
def test_many_names_have_many_numbers() -> None:
    text = " ".join(f"%n{number}" for number in range(12_345))
    assert blur_natively(text) == blur(text) == text.replace("n", "")
