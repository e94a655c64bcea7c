"""Operands before users, as `HloComputation::MakeInstructionPostOrder` has them."""

from __future__ import annotations

import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hlomem.analysis.post_order import instruction_post_order
from hlomem.hlo.text.parser import parse
from tests.places import GOLDENS


def _order(*lines: str) -> list[str]:
    body = "\n".join(f"  {line}" for line in lines)
    entry = parse(f"HloModule m\n\nENTRY %e {{\n{body}\n}}\n").entry
    return [instruction.name for instruction in instruction_post_order(entry)]


def test_the_first_operand_is_finished_first() -> None:
    """The depth-first walk pushes operands in reverse, so the first is popped first."""
    order = _order(
        "%p = f32[2]{0} parameter(0)",
        "%a = f32[2]{0} negate(%p)",
        "%b = f32[2]{0} cosine(%p)",
        "ROOT %c = f32[2]{0} add(%b, %a)",
    )
    assert order == ["p", "b", "a", "c"]


def test_control_predecessors_are_visited_before_operands() -> None:
    order = _order(
        "%p = f32[2]{0} parameter(0)",
        "%a = f32[2]{0} negate(%p)",
        "%b = f32[2]{0} cosine(%p)",
        "ROOT %c = f32[2]{0} sine(%b), control-predecessors={%a}",
    )
    assert order == ["p", "a", "b", "c"]


def test_unused_parameters_come_first_by_number() -> None:
    order = _order(
        "%x = f32[2]{0} parameter(1)",
        "%y = f32[2]{0} parameter(0)",
        "%z = f32[2]{0} parameter(2)",
        "ROOT %c = f32[2]{0} negate(%z)",
    )
    assert order == ["y", "x", "z", "c"]


def test_what_the_last_one_reads_stands_as_it_reads_it() -> None:
    """Also where nothing else is there to read, as in an adder."""
    lines = ("%x = f32[] parameter(0)", "%y = f32[] parameter(1)")
    assert _order(*lines, "ROOT %s = f32[] add(%x, %y)") == ["x", "y", "s"]
    assert _order(*lines, "ROOT %s = f32[] add(%y, %x)") == ["y", "x", "s"]


def test_every_golden_has_each_instruction_once_and_behind_its_operands() -> None:
    for path in sorted(GOLDENS.glob("xla/jaxlib-0.12.0.1/cpu/*/module.*"))[:20]:
        _check_orders(path)


def _check_orders(path: Path) -> None:
    for computation in parse(path.read_text()).computations:
        order = instruction_post_order(computation)
        place = {instruction: number for number, instruction in enumerate(order)}
        assert len(place) == len(order) == len(computation.instructions)
        for instruction in order:
            before = itertools.chain(instruction.operands, instruction.control_predecessors)
            assert all(place[operand] < place[instruction] for operand in before)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=12))
def test_operands_stand_before_users_in_any_graph(edges: list[tuple[int, int]]) -> None:
    lines = ["%v0 = f32[2]{0} parameter(0)"]
    operands: dict[str, set[str]] = {"v0": set()}
    for number, pair in enumerate(edges, 1):
        one, two = (f"v{each % number}" for each in pair)
        operands[f"v{number}"] = {one, two}
        lines.append(f"%v{number} = f32[2]{{0}} add(%{one}, %{two})")
    seen: set[str] = set()
    for name in _order(*lines):
        assert operands[name] <= seen
        seen.add(name)
    assert seen == set(operands)
