"""Values that are alive together share no byte, but for pieces, branches and contexts."""

from __future__ import annotations

from hlomem.check.verify import verify
from hlomem.dump.dump import Dump
from hlomem.machines.cpu import CPU
from tests import plain
from tests.check.small import V, branches, rules, small_dump


def test_values_one_after_another_may_share() -> None:
    assert rules(small_dump([V("a", (0, 1)), V("b", (2, 3))], sequence=["a", "x", "b", "y"])) == []


def concat(first: int, second: int) -> Dump:
    """Two slices, and their concatenation at offset 64."""
    cut = "f32[16]{0} slice(%w), slice={[%d:%d]}"
    pieces = [
        V("p", (0, 2), first, text=cut.replace("%d:%d", "16:32")),
        V("q", (1, 2), second, text=cut.replace("%d:%d", "0:16")),
    ]
    text = 'f32[32]{0} custom-call(%p, %q), custom_call_target="ConcatBitcast"'
    return small_dump([*pieces, V("c", (2, 3), 64, text=text, shape="f32[32]{0}", size=128)])


def test_pieces_of_a_concatenation_lie_at_their_place() -> None:
    assert rules(concat(128, 64)) == []
    assert rules(concat(64, 128)) == ["interference/concat-piece"]


def test_a_piece_that_is_no_operand_has_no_place() -> None:
    text = 'f32[16]{0} custom-call(%a), custom_call_target="ConcatBitcast"'
    values = [V("a", (0, 1), uses=(("c", 3, ()),)), V("c", (1, 2), text=text)]
    assert "interference/concat-piece" in rules(small_dump(values))


def test_values_of_exclusive_branches_may_share() -> None:
    assert rules(branches()) == []
    assert rules(branches(y=5)) == ["interference/overlap"]


def test_a_branch_may_overwrite_what_it_has_read_if_nothing_later_reads_it() -> None:
    assert rules(branches(o=1)) == []
    assert rules(branches(o=0)) == ["interference/overlap"]
    for reader in ("r", "z"):
        found = verify(branches((reader, 1, ()), o=1), machine=CPU).findings
        blamed = [each.values[1].name for each in found if each.rule == "interference/overlap"]
        assert blamed == [reader]


def contexts(start: str, thread: str = "other") -> Dump:
    """Two operations of another thread; `t` is started while that of `s` and `u` runs."""
    shape, named = "((), (), (f32[16]{0}))", 'async_execution_thread="other"'
    second = f'{shape} custom-call-{start}, async_execution_thread="{thread}"'
    values = [
        V("a", (0, 5), text="f32[16]{0} constant({...})", allocation=1),
        V("s", (1, 2), text=f"{shape} custom-call-start(), {named}", index=(2, 0)),
        V("u", (2, 4), text=f"{shape} custom-call-update(%s, %a)", index=(2, 0)),
        V("t", (3, 5), text=second, index=(2, 0)),
    ]
    header = {1: plain.Allocation(index=1, size=64, is_constant=True)}
    return small_dump(values, header, sequence=["a", "s", "u", "t", "d", "e"])


def test_an_operation_that_waits_for_its_operands_does_not_need_its_context_yet() -> None:
    assert "interference/overlap" not in rules(contexts("start()"))
    assert "interference/overlap" in rules(contexts("start(%a)"))
    assert "interference/overlap" in rules(contexts("start()", thread="third"))
    assert "interference/overlap" in rules(contexts("update(%a)"))


def queued(second: str = "custom-call-update(%t, %a)", thread: str = "other") -> Dump:
    """Two operations of another thread; `w` brings the operands of `t` while `u` runs."""
    shape, named = "((), (), (f32[16]{0}))", 'async_execution_thread="other"'
    values = [
        V("a", (0, 6), text="f32[16]{0} constant({...})", allocation=1),
        V("s", (1, 2), text=f"{shape} custom-call-start(), {named}", index=(2, 0)),
        V("u", (2, 5), text=f"{shape} custom-call-update(%s, %a)", index=(2, 0)),
        V(
            "t",
            (3, 4),
            text=f'{shape} custom-call-start(), async_execution_thread="{thread}"',
            index=(2, 0),
        ),
        V("w", (4, 6), text=f"{shape} {second}", index=(2, 0)),
    ]
    header = {1: plain.Allocation(index=1, size=64, is_constant=True)}
    return small_dump(values, header, sequence=["a", "s", "u", "t", "w", "d", "e"])


def test_operations_that_wait_for_their_turn_share_a_context() -> None:
    assert "interference/overlap" not in rules(queued())
    assert "interference/overlap" in rules(queued(thread="third"))
    assert "interference/overlap" in rules(queued(second="custom-call(%t, %a)"))
