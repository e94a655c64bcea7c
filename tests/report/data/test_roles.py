"""What bytes are for, by instruction, name and loop."""

from __future__ import annotations

import math
import re
from itertools import combinations

import pytest

import hlomem
from hlomem.report.data import roles
from hlomem.report.data.memory import build_memory
from hlomem.report.data.occupancy import build_role_shares
from hlomem.report.page.html import TEMPLATES
from hlomem.view.instruction_line import parse_instruction_line
from tests.places import ROOT

OOM = ROOT / "examples" / "oom" / "before"
_LEAST_DISTANCE = 8
"""Of colours side by side; 2 to 3 is where people begin to see any."""


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
    assert roles.role_by_name(name, text.opcode, text.shape_text, operation) == role


def test_every_role_has_a_meaning() -> None:
    names = {
        value
        for name, value in vars(roles).items()
        if name.isupper() and name[0] != "_" and isinstance(value, str)
    }
    assert names == set(roles.MEANING)


def test_of_roles_that_share_bytes_one_counts() -> None:
    ranks = [role.rank for role in roles.ROLES if role.rank]
    assert len(set(ranks)) == len(ranks)
    assert roles.rank(roles.STACKED) < roles.rank(roles.ACTIVATIONS) < roles.rank(roles.TUPLES)


def _lab(colour: str) -> tuple[float, float, float]:
    """#rrggbb in CIELAB, where distances are about what an eye sees."""
    assert re.fullmatch(r"#[0-9a-f]{6}", colour)
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (p ** (1 / 3) if p > 0.008856 else 7.787 * p + 16 / 116 for p in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_roles_have_colours_that_differ_on_both_papers() -> None:
    """The page has one colour per role, on white and on black paper."""
    style = (TEMPLATES / "page.css").read_text()
    papers = re.search(r"--paper: light-dark\((#\w{6}), (#\w{6})\)", style)
    assert papers is not None
    colours = [*(role.colour for role in roles.ROLES), papers[1], papers[2]]
    for one, other in combinations(colours, 2):
        assert math.dist(_lab(one), _lab(other)) > _LEAST_DISTANCE, (one, other)


def test_what_a_scan_stacks_is_told_from_what_it_carries() -> None:
    memory = build_memory(hlomem.load(OOM))
    of = {buffer.name: buffer.role for buffer in memory.buffers}
    assert of["while.4{2}"] == of["while.4{3}"] == roles.STACKED
    assert of["opt_state__layers__.1"] == roles.OPTIMIZER
    shares = {share.role: share.size for share in build_role_shares(memory, 0)}
    assert shares[roles.STACKED] > shares[roles.WEIGHTS] == shares[roles.OPTIMIZER]
    assert of["wide.wide.wide.arg_tuple.0{1}"] == roles.CARRIED


def test_the_roles_are_in_the_documents() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for role, meaning in roles.MEANING.items():
        assert f"| {role} | {meaning} |\n" in text
