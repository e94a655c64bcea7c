"""The judge's tables agree with each other, and with the planner's where both must say the same."""

from __future__ import annotations

import pytest

from hlomem.check import opcodes as judge
from hlomem.hlo import opcodes as planner
from hlomem.hlo.opcodes import Opcode

TABLES = {
    name: frozenset(table)
    for name, table in vars(judge).items()
    if isinstance(table, frozenset | dict) and name.isupper()
}


@pytest.mark.parametrize("name", TABLES)
def test_every_row_is_an_opcode_of_xla(name: str) -> None:
    assert TABLES[name] <= planner.KNOWN_OPCODES


def test_what_reads_where_it_writes_does_not_read_elsewhere() -> None:
    # A copy may change the layout, and then reads elsewhere; in a fusion it does not.
    assert {"copy"} == judge.SAME_PLACE & judge.READS_ELSEWHERE


def test_whatever_the_planner_calls_elementwise_may_be_written_in_place() -> None:
    moves: frozenset[Opcode] = planner.ELEMENTWISE & judge.READS_ELSEWHERE
    assert moves == {"copy"}


def test_both_know_the_same_opcodes_that_run_others() -> None:
    assert judge.RUNS_OTHERS - planner.ASYNC_OPCODES == planner.RUN_IN_PLACE - planner.ASYNC_OPCODES
    assert judge.BINDS_OPERANDS < planner.ASYNC_OPCODES


def test_what_may_write_over_one_operand_is_not_refused_for_all() -> None:
    assert judge.ONLY_INTO_OPERAND.keys().isdisjoint(judge.READS_ELSEWHERE)
