"""The program rebuilt from a dump is the one XLA had, which the goldens keep beside the dump."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem import hlo
from hlomem.analysis.call_markers import AFTER
from hlomem.hlo.ir import HloInstruction, HloModule
from hlomem.machines.cpu import CPU
from hlomem.machines.options import options_for
from hlomem.machines.releases import find_release
from hlomem.rebuild.module import rebuild
from hlomem.view.joined import join_dump
from tests.places import GOLDENS

ENTRIES = sorted(
    path.parent
    for path in (GOLDENS / "xla").glob("*/*/*/module.hlo")
    if " async-update(" not in path.read_text()  # which is refused
)
DUMPS = [*ENTRIES, *sorted((GOLDENS / "seeds").glob("*.txt"))]
CALLERS = frozenset({"call", "conditional", "while", "async-start"})


def _rebuilt(path: Path) -> HloModule:
    dump = hlomem.load(path)
    release = find_release(dump.era.letter)
    return rebuild(join_dump(dump), options_for(CPU, release)).module


def _in_flow(module: HloModule) -> dict[str, HloInstruction]:
    """The instructions of the schedule, by name."""
    pending, seen = [module.entry], {module.entry}
    found = {}
    while pending:
        for instruction in pending.pop().instructions:
            found[instruction.name] = instruction
            if instruction.opcode in CALLERS:
                new = [each for each in instruction.called_computations if each not in seen]
                pending += new
                seen.update(new)
    return found


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda p: "/".join(p.parts[-3:]))
def test_every_scheduled_instruction_is_back(entry: Path) -> None:
    wanted = _in_flow(hlo.parse((entry / "module.hlo").read_text()))
    made = _in_flow(_rebuilt(entry))
    assert made.keys() == wanted.keys()
    views = {  # parameters of the shapes of bitcasts, which no dump tells
        parameter.name
        for call in wanted.values()
        if call.opcode == "call"
        for parameter in call.called_computations[0].parameters
        if call.operands[parameter.parameter_number].opcode == "bitcast"
    }
    for name, one in wanted.items():
        other = made[name]
        is_forwarded = one.opcode == "custom-call" and one.custom_call_target == AFTER
        assert other.opcode == ("bitcast" if is_forwarded else one.opcode), name
        assert [each.name for each in other.operands] == [each.name for each in one.operands]
        assert other.is_root == one.is_root, name
        if not (is_forwarded or one.opcode == "bitcast" or name in views):
            assert other.shape == one.shape, name


@pytest.mark.parametrize("path", DUMPS, ids=lambda p: "/".join(p.parts[-3:]))
def test_the_text_is_a_module_in_every_detail(path: Path) -> None:
    text = _rebuilt(path).source.text
    hlo.parse(text, lazy=False)
