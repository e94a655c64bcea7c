"""What fuzzing found, in its smallest form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.entry_points import End
from tests.fuzz.limits import Trial, run_limited
from tests.fuzz.trials import plan_for

CASES = Path(__file__).parent / "cases"
PROBLEMS = {
    "alias_of_a_missing_operand.hlo": "output_to_operand_aliasing names operand 9 {9}",
    "alias_of_a_missing_operand_in_a_fusion.hlo": "output_to_operand_aliasing names operand 3 {}",
    "alias_of_a_missing_parameter.hlo": "the header aliases or donates parameter 9 {}",
    "cyclic_fusions.hlo": "computation `g` is called before it is defined",
    "entry_that_a_fusion_calls.hlo": "`fused` is the entry, and runs inside an operation, too",
    "fusion_with_an_operand_too_many.hlo": "`fused` takes 1 operands, not 2",
    "loop_returns_another_shape.hlo": "the result has shape `(f32[8])`, the root of",
    "number_of_5000_digits.hlo": "",
    "runs_in_both_contexts.hlo": "`f` runs both inside this and in the flow of the program",
    "terminal_controls.txt": "this is a dump; `plan` needs the HLO module",
    "tuple_that_only_a_fusion_calls.hlo": "the result is not a tuple of 1 elements",
    "tuple_where_an_array_was.hlo": "the result does not have the tuples of its operand",
    "unbounded_dimension.hlo": "a shape with an unbounded dimension has no size",
}
"""What `plan` says to each; nothing where it plans."""


def test_every_case_is_listed() -> None:
    assert {path.name for path in CASES.iterdir()} == PROBLEMS.keys()


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_case_is_read_or_refused_in_words(name: str) -> None:
    commands = [["show", name], ["show", "--json", name], ["fmt", name], ["verify", name]]
    trial = Trial({name: (CASES / name).read_bytes()}, commands)
    for outcome in run_limited(trial):
        says_why_not = outcome.command == "verify" and "this is an HLO module" in outcome.said
        assert outcome.end in {End.ACCEPTED, End.REFUSED} or says_why_not, outcome


@pytest.mark.parametrize(("name", "problem"), PROBLEMS.items())
def test_a_case_is_planned_or_refused_in_words(name: str, problem: str) -> None:
    [outcome] = run_limited(Trial({name: (CASES / name).read_bytes()}, [[*plan_for("cpu"), name]]))
    assert outcome.end is not End.BUG
    assert (outcome.end is End.ACCEPTED) == (not problem)
    assert problem in outcome.said
