"""What goes together of operands and results, opcode by opcode."""

from __future__ import annotations

from hlomem import hlo
from hlomem.hlo.counting_indices import Scope
from hlomem.hlo.dimension_links import Share, links_of
from hlomem.hlo.ir import HloInstruction


def _instruction(line: str, *operands: str, more: str = "") -> HloInstruction:
    """The root of a module of one computation, on parameters of these shapes."""
    given = [f"  %p{number} = {shape} parameter({number})" for number, shape in enumerate(operands)]
    names = ", ".join(f"%p{number}" for number in range(len(operands)))
    root = line.replace("(...)", f"({names})")
    text = "\n".join(
        ["HloModule one", more, "ENTRY %main {", *given, f"  ROOT %root = {root}", "}"]
    )
    return hlo.parse(text).entry.root


def _links(line: str, *operands: str, more: str = "") -> set[tuple[object, ...]]:
    found = links_of(_instruction(line, *operands, more=more), Scope())
    return {(*link.operands, "to", *link.results) for link in found}


SUM = (
    "%add {\n %a = f32[] parameter(0)\n %b = f32[] parameter(1)\n ROOT %c = f32[] add(%a, %b)\n}\n"
)


def test_a_dimension_is_kept_where_it_is_the_outer_part_of_another() -> None:
    merged = _links("f32[32,16]{1,0} bitcast(...)", "f32[8,4,16]{2,1,0}")
    assert merged == {(0, "to", 0), (2, "to", 1)}
    turned = _links("f32[16,32]{0,1} bitcast(...)", "f32[8,4,16]{2,1,0}")
    assert turned == {(0, "to", 1), (2, "to", 0)}
    assert _links("f32[6,4]{1,0} bitcast(...)", "f32[4,6]{1,0}") == {(0, "to", 0)}


def test_a_product_links_batches_rows_columns_and_what_is_summed() -> None:
    found = _links(
        "f32[2,8,5]{2,1,0} dot(...), lhs_batch_dims={0}, rhs_batch_dims={0},"
        " lhs_contracting_dims={2}, rhs_contracting_dims={1}",
        "f32[2,8,3]{2,1,0}",
        "f32[2,3,5]{2,1,0}",
    )
    batch, row, column = (0, 0, "to", 0), (1, None, "to", 1), (None, 2, "to", 2)
    assert found == {batch, row, column, (2, 1, "to", Share("add"))}


def test_what_is_padded_sliced_or_reversed_is_not_cut() -> None:
    pad = _links("f32[8,6]{1,0} pad(...), padding=0_0x1_1", "f32[8,4]{1,0}", "f32[]")
    assert pad == {(0, None, "to", 0)}
    moved = _links("f32[8,4]{1,0} pad(...), padding=0_0x1_-1", "f32[8,4]{1,0}", "f32[]")
    assert moved == {(0, None, "to", 0)}
    cut = _links("f32[8,2]{1,0} slice(...), slice={[0:8], [1:3]}", "f32[8,4]{1,0}")
    assert cut == {(0, "to", 0)}
    turned = _links("f32[8,4]{1,0} reverse(...), dimensions={1}", "f32[8,4]{1,0}")
    assert turned == {(0, "to", 0)}


def test_a_reduction_that_begins_with_something_has_no_shares() -> None:
    line = "f32[8]{0} reduce(...), dimensions={1}, to_apply=%add"
    assert _links(line, "f32[8,4]{1,0}", "f32[]", more=SUM) == {(0, None, "to", 0)}


def test_arrays_in_tiles_are_left_alone() -> None:
    assert not _links("f32[8,128]{1,0:T(8,128)} negate(...)", "f32[8,128]{1,0:T(8,128)}")
