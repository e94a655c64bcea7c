"""What bodies hold, read off their text: the same as opening them tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from hlomem.analysis.defined_parts import count_defined
from hlomem.analysis.fused_bodies import FusedBodies, _read_arrays, form_of, operand_rows
from hlomem.hlo.text import scanner
from hlomem.hlo.text.parser import parse
from tests.hlo.native import damaged_texts, in_python, needs_native

if TYPE_CHECKING:
    from pathlib import Path

TWO_BODIES = """\
HloModule two

%fused.1 (p.1: f32[8]) -> f32[8] {{
  %p.1 = f32[8]{{0}} parameter(0)
  ROOT %r.1 = f32[8]{{0}} {one}(%p.1, %p.1)
}}

%fused.2 (p.2: f32[8]) -> f32[8] {{
  %p.2 = f32[8]{{0}} parameter(0)
  ROOT %r.2 = f32[8]{{0}} {other}(%p.2, %p.2)
}}

ENTRY %main (a: f32[8]) -> f32[8] {{
  %a = f32[8]{{0}} parameter(0)
  %b = f32[8]{{0}} fusion(%a), kind=kLoop, calls=%fused.1
  ROOT %c = f32[8]{{0}} fusion(%b), kind=kLoop, calls=%fused.2
}}
"""


@pytest.mark.parametrize("opcodes", [("add", "add"), ("atan2", "atan2"), ("new1", "new2")])
def test_bodies_that_differ_in_digits_hold_their_own_opcodes(opcodes: tuple[str, str]) -> None:
    module = parse(TWO_BODIES.format(one=opcodes[0], other=opcodes[1]))
    bodies = FusedBodies()
    for number, opcode in enumerate(opcodes, 1):
        body = bodies[module.computation_by_name[f"fused.{number}"]]
        assert (body.instruction_count, body.value_count) == (2, 2)
        assert body.opcodes == {"parameter", opcode}


def test_every_body_of_the_goldens_holds_what_its_instructions_are(goldens: Path) -> None:
    count = 0
    for path in sorted(goldens.rglob("module.hlo")):
        module = parse(path.read_text())
        bodies = FusedBodies()
        for computation in [each for each in module.computations if each.is_fused]:
            body = bodies[computation]
            instructions = computation.instructions
            opcodes = [each.opcode for each in instructions]
            values = [count_defined(each.shape, each.opcode) for each in instructions]
            assert (body.instruction_count, body.value_count) == (len(opcodes), sum(values))
            assert body.opcodes == frozenset(opcodes)
            assert body.may_call >= any(each.called_computations for each in instructions)
            count += 1
    assert count


@needs_native
@given(damaged_texts())
def test_damaged_bodies_hold_the_same_natively(text: str) -> None:
    computations, _ = scanner.match_computations(text, max(0, text.find("\n\n")))
    bodies: dict[bytes, object] = {}
    for computation in computations:
        start, end = computation.body
        with in_python():
            held = _read_arrays(text[start:end])
            form = form_of(text, start, end)
            rows = operand_rows(text, start, end)
        native = form_of(text, start, end)
        assert native == form or (held is not None and bodies.setdefault(native, held) == held)
        assert operand_rows(text, start, end) == rows


@needs_native
def test_bodies_of_the_same_opcodes_have_one_form() -> None:
    one, other = (TWO_BODIES.format(one="add", other=opcode) for opcode in ("add", "power"))
    assert _count_forms(one) == 1
    assert _count_forms(other) == 2


def _count_forms(text: str) -> int:
    return len({form_of(text, *found.body) for found in scanner.scan_computations(text, 14)[0][:2]})
