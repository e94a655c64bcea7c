"""What bytes are for, by instruction, name and loop."""

from __future__ import annotations

import pytest

import hlomem
from hlomem.dump.records import Allocation, AssignedValue, Parameter
from hlomem.report.data import roles
from hlomem.report.data.memory import build_memory
from hlomem.report.data.role_shares import build_role_shares
from hlomem.view.instruction_line import parse_instruction_line
from hlomem.view.joined import PlacedValue
from tests.places import ROOT

OOM = ROOT / "examples" / "oom" / "before"


@pytest.mark.parametrize(
    ("instruction", "operation", "role"),
    [
        ("%copy.3 = f32[8]{0} copy(%a)", None, roles.COPIES),
        ("%wrapped_transpose.6 = f32[8]{0} fusion(%a), kind=kInput", "jvp(f)", roles.COPIES),
        ("%loop_copy_fusion = f32[8]{0} fusion(%a), kind=kLoop", None, roles.COPIES),
        ("%copy_add_fusion = f32[8]{0} fusion(%a), kind=kLoop", None, roles.TEMPORARIES),
        ("%all-gather.1 = f32[8]{0} all-gather(%a)", None, roles.COLLECTIVES),
        ("%ar = f32[8]{0} all-reduce-start(%a)", None, roles.COLLECTIVES),
        ("%cs = u32[] copy-start(%a)", None, roles.TUPLES),
        ("%t = (f32[8]{0}, f32[8]{0}) tuple(%a, %b)", None, roles.TUPLES),
        ("%d = f32[8]{0} dot(%a, %b)", "jit(f)/transpose(jvp())/dot", roles.GRADIENTS),
        ("%d = f32[8]{0} dot(%a, %b)", "jit(f)/jvp()/dot", roles.ACTIVATIONS),
        (
            "%d = f32[8]{0} dot(%a, %b)",
            "jit(f)/transpose(jvp())/checkpoint/rematted_computation/dot",
            roles.ACTIVATIONS,
        ),
        ("%d = f32[8]{0} dot(%a, %b)", "jit(f)/dot", roles.TEMPORARIES),
    ],
)
def test_a_temporary_is_what_its_instruction_says(
    instruction: str, operation: str | None, role: str
) -> None:
    text = parse_instruction_line(instruction)
    assert text is not None
    name = instruction.partition(" ")[0][1:]
    value = AssignedValue(id=1, name=name, size=32, offset=0, shape=text.shape_text)
    placed = PlacedValue(value, Allocation(index=0, size=32), None, None)
    assert roles.role_of_temporary(placed, text, operation) == role


def test_parameters_named_after_optimizer_state_are_that() -> None:
    allocation = Allocation(
        index=0, size=8, parameter=Parameter(number=3, shape="f32[2]", index=())
    )
    for name in ("opt_state[0].mu['w']", "state[1][0].nu['w']", "adam_m", "momentum['w']"):
        assert roles.role_of_allocation(allocation, name) == roles.OPTIMIZER
    for other in ("params['mu']['w']", "x", "args[3]", None):
        assert roles.role_of_allocation(allocation, other) == roles.PARAMETERS


def test_every_role_has_a_meaning() -> None:
    names = {
        value
        for name, value in vars(roles).items()
        if name.isupper() and name[0] != "_" and isinstance(value, str)
    }
    assert names == set(roles.MEANING)


def test_what_a_scan_stacks_is_told_from_what_it_carries() -> None:
    memory = build_memory(hlomem.load(OOM))
    of = {buffer.name: buffer.role for buffer in memory.buffers}
    assert of["while.4{2}"] == of["while.4{3}"] == roles.STACKED
    assert of["opt_state__layers__.1"] == roles.OPTIMIZER
    shares = {share.role: share.size for share in build_role_shares(memory, 0)}
    assert shares[roles.STACKED] > shares[roles.OUTPUTS] > shares[roles.PARAMETERS]
    assert shares[roles.CARRIED] == 10240 * 4096 * 4


def test_the_roles_are_in_the_documents() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for role, meaning in roles.MEANING.items():
        assert f"| {role} | {meaning} |\n" in text
