"""Two texts of one program: what may differ between two sizes, and what makes them two programs."""

from __future__ import annotations

import pytest

from hlomem.base.errors import UnsupportedError
from hlomem.base.source import Source
from hlomem.hlo.text.aligned import align_texts
from tests.golden_programs import GOLDEN_PROGRAMS

FRAME = """HloModule m, is_scheduled=true
{table}
ENTRY %main (a: f32[4,8]) -> f32[8] {{
  %a = f32[4,8]{{1,0}} parameter(0)
{line}
}}
"""


def _aligned(line: str, other: str, tables: tuple[str, str] = ("", "")) -> list[object]:
    texts = (
        Source("one", FRAME.format(table=tables[0], line=line)),
        Source("other", FRAME.format(table=tables[1], line=other)),
    )
    return [piece for piece in align_texts(*texts) if isinstance(piece, tuple)]


ALIKE = {
    "extents": ("  %b = f32[4,8]{1,0} tanh(%a)", "  %b = f32[6,8]{1,0} tanh(%a)", [(4, 6)]),
    "extents of tuples": (
        "  %b = (f32[4]{0}, s8[2]{0}) tuple(%a, %a)",
        "  %b = (f32[6]{0}, s8[3]{0}) tuple(%a, %a)",
        [(4, 6), (2, 3)],
    ),
    "bounds": ("  %b = f32[<=4]{0} tanh(%a)", "  %b = f32[<=6]{0} tanh(%a)", [(4, 6)]),
    "shapes of operands": (
        "  %b = f32[8]{0} tanh(f32[4]{0} %a)",
        "  %b = f32[8]{0} tanh(f32[6]{0} %a)",
        [(4, 6)],
    ),
    "ranges": (
        "  %b = f32[3]{0} slice(%a), slice={[1:4]}",
        "  %b = f32[5]{0} slice(%a), slice={[1:6]}",
        [(3, 5), (4, 6)],
    ),
    "windows": (
        "  %b = f32[3]{0} reduce-window(%a, %a), window={size=4x1 pad=0_0x0_0}, to_apply=%r",
        "  %b = f32[3]{0} reduce-window(%a, %a), window={size=6x1 pad=0_0x0_0}, to_apply=%r",
        [(4, 6)],
    ),
    "literals": ("  %b = s32[] constant(4)", "  %b = s32[] constant(6)", []),
    "metadata": (
        '  %b = f32[8]{0} tanh(%a), metadata={op_name="a" stack_frame_id=3}',
        '  %b = f32[8]{0} tanh(%a), metadata={op_name="a" stack_frame_id=4}',
        [],
    ),
    "settings": (
        '  %b = f32[8]{0} tanh(%a), backend_config={"outer_dimension_partitions":["2"]}',
        "  %b = f32[8]{0} tanh(%a)",
        [],
    ),
}


@pytest.mark.parametrize("case", ALIKE, ids=str)
def test_sizes_show_in(case: str) -> None:
    line, other, pairs = ALIKE[case]
    assert _aligned(line, other) == pairs


OTHERWISE = {
    "another instruction": ("  %b = f32[8]{0} tanh(%a)", "  %b = f32[8]{0} sine(%a)"),
    "another type or layout": ("  %b = f32[4,8]{1,0} tanh(%a)", "  %b = f32[6,8]{0,1} tanh(%a)"),
    "other operands": ("  %b = f32[8]{0} tanh(%a)", "  %b = f32[8]{0} tanh(%c)"),
    "other attributes": ("  %b = f32[8]{0} tanh(%a)", "  %b = f32[8]{0} tanh(%a), x=1"),
    "another `dimensions`": (
        "  %b = f32[8]{0} broadcast(%a), dimensions={0}",
        "  %b = f32[8]{0} broadcast(%a), dimensions={1}",
    ),
    "another `replica_groups`": (
        "  %b = f32[8]{0} all-reduce(%a), replica_groups=[2,4]<=[8]",
        "  %b = f32[8]{0} all-reduce(%a), replica_groups=[4,2]<=[8]",
    ),
    "another `backend_config`": (
        '  %b = f32[8]{0} tanh(%a), backend_config={"beta":0}',
        '  %b = f32[8]{0} tanh(%a), backend_config={"beta":1}',
    ),
    "another computation": ("}\n\n%f (x: f32[]) -> f32[] {", "}\n\n%g (x: f32[]) -> f32[] {"),
}


@pytest.mark.parametrize("case", OTHERWISE, ids=str)
def test_two_programs_differ_by(case: str) -> None:
    with pytest.raises(UnsupportedError, match=case) as caught:
        _aligned(*OTHERWISE[case])
    assert caught.value.line > 4


def test_a_text_that_goes_on_is_another_program() -> None:
    line = "  %b = f32[8]{0} tanh(%a)"
    texts = FRAME.format(table="", line=line), FRAME.format(table="", line=line) + "\n%g {\n}\n"
    for one, other in (texts, texts[::-1]):
        with pytest.raises(UnsupportedError, match="the other program has no such line"):
            list(align_texts(Source("one", one), Source("other", other)))


def test_tiles_are_no_extents() -> None:
    tiled = "  %b = f32[4,8]{{1,0:T({},128)}} tanh(%a)"
    with pytest.raises(UnsupportedError, match="another type or layout"):
        _aligned(tiled.format(2), tiled.format(4))


def test_tables_of_stack_frames_are_not_compared() -> None:
    line = "  %b = f32[8]{0} tanh(%a)"
    tables = ('\nFileNames\n1 "a.py"\n', '\nFileNames\n1 "b.py"\n2 "c.py"\n')
    assert _aligned(line, line, tables) == []


def test_a_text_beside_itself_is_itself() -> None:
    for program in GOLDEN_PROGRAMS[::7]:
        text = program.text
        assert "".join(map(str, align_texts(Source("a", text), Source("b", text)))) == text
