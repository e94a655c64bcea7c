"""A module as the judge sees it: what is given away, what runs, what is applied."""

from __future__ import annotations

from hlomem import hlo
from hlomem.check.program import TracedProgram, trace_program
from hlomem.view.joined import join_dump
from tests.check.small import planned

MODULE = """HloModule m, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }

add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

cond {
  k = f32[16]{0} parameter(0)
  ROOT l = pred[] constant(false)
}

body {
  m = f32[16]{0} parameter(0)
  ROOT n = f32[16]{0} negate(m)
}

ENTRY e {
  q = f32[16]{0} parameter(0)
  i = f32[] parameter(1)
  r = f32[] reduce(q, i), dimensions={0}, to_apply=add
  b = f32[16]{0} broadcast(r), dimensions={}
  ROOT w = f32[16]{0} while(b), condition=cond, body=body
}
"""


def _program() -> TracedProgram:
    dump = planned(MODULE)
    return trace_program(hlo.parse(MODULE), join_dump(dump))


def test_an_argument_that_is_not_given_away_is_read_only() -> None:
    assert _program().read_only == {("i", ())}


def test_a_loop_is_told_by_its_parts() -> None:
    [loop] = _program().structure.loops
    assert (loop.instruction, loop.body_root) == ("w", "n")
    assert (loop.condition_parameter, loop.body_parameter) == ("k", "m")
    assert _program().structure.conditionals == ()


def test_computations_take_the_moments_of_their_instructions() -> None:
    program = _program()
    spans = {computation.name: span for computation, span in program.spans.items()}
    assert spans["cond"][1] == spans["body"][0]
    assert spans["e"][0] == 0
    assert "add" not in spans


def test_what_a_reduction_applies_does_not_run_by_itself() -> None:
    assert [computation.name for computation in _program().iter_applied()] == ["add"]
