"""Loops that stack values for one another are found, and so is who reads what."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem import hlo
from hlomem.opt.loops.pairs import find_pairs
from hlomem.opt.loops.stacks import fusion_of
from tests.opt.loops.test_stacks import TEXT
from tests.opt.remat.scanned import ALL, HANDED, SCANNED, name_of, scanned_text


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_the_second_loop_reads_the_slices_in_the_reverse_order(path: Path) -> None:
    [pair] = find_pairs(hlo.parse(scanned_text(path)))
    count = len(pair.first.ticks)
    assert pair.counterparts == tuple(reversed(range(count)))
    for stack in pair.stacks:
        assert stack.places == tuple(range(count))
        assert stack.reads
        shape = pair.first.initial.operands[stack.earlier_index].shape
        assert shape == pair.second.initial.operands[stack.later_index].shape
        assert shape.dimensions == (count, *stack.part.dimensions[1:])


@pytest.mark.parametrize("path", HANDED, ids=name_of)
def test_stacks_are_found_in_whatever_fusion_writes_and_reads_them(path: Path) -> None:
    [pair] = find_pairs(hlo.parse(scanned_text(path)))
    runs = [stack.write.runs for stack in pair.stacks]
    if path.parent.name == "cuda-h100":
        assert any(one.opcode == "async-start" for one in runs)
        reads = [read for stack in pair.stacks for read in stack.reads]
        assert any(read.instruction.opcode == "async-start" for read in reads)
    elif path.parent.name == "cpu":
        assert pair.first.instruction.opcode == pair.second.instruction.opcode == "call"
    else:
        assert len(set(runs)) < len(runs)
        assert any(one.shape.is_tuple for one in runs)
    # All that the second loop is given by the first, but for what others read, too, or change.
    given = [one for one in pair.second.initial.operands if one.operands]
    ours = [one for one in given if one.operands[0] is pair.first.instruction]
    alone = [one for one in ours if one.users == [pair.second.initial]]
    assert len(pair.stacks) == len(alone) >= 3
    assert all(fusion_of(one) is not None for one in runs)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("subtract(%constant", "add(%constant"),  # places beyond the end, all clamped to the last
        ("direction=LT", "direction=NE"),
    ],
)
def test_a_loop_is_gone_through_and_not_guessed_at(old: str, new: str) -> None:
    text = SCANNED[0].read_text(encoding="utf-8")
    if old not in text:
        pytest.skip("XLA writes it otherwise")
    [pair] = find_pairs(hlo.parse(text))
    changed = find_pairs(hlo.parse(text.replace(old, new)))
    if old.startswith("subtract"):
        assert not changed or changed[0].counterparts != pair.counterparts
    else:
        assert changed[0].counterparts == pair.counterparts


@pytest.mark.parametrize(
    ("called", "count"), [(("first",), 1), (("second",), 0), (("first", "second"), 1)]
)
def test_a_loop_in_a_call_gets_nothing_from_one_that_is_not(
    called: tuple[str, ...], count: int
) -> None:
    text = TEXT
    for name in called:
        [line] = [line for line in text.split("\n") if line.startswith(f"  %{name} = ")]
        shape, _, rest = line.partition(" = ")[2].partition(" while(")
        operand, _, attributes = rest.partition(")")
        computation = (
            f"%only_{name} (given.{name}: {shape}) -> {shape} {{\n"
            f"  %given.{name} = {shape} parameter(0)\n"
            f"  ROOT %repeats.{name} = {shape} while(%given.{name}){attributes}\n}}\n\n"
        )
        call = f"  %{name} = {shape} call({operand}), to_apply=%only_{name}"
        text = text.replace(line, call).replace("ENTRY", f"{computation}ENTRY")
    assert len(find_pairs(hlo.parse(text))) == count
