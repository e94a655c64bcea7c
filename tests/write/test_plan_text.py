"""The text of a plan, made without records."""

from __future__ import annotations

import pytest

import hlomem
from hlomem.dump.eras import ERAS
from tests.places import GOLDENS

XLA_GOLDENS = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu"
PROGRAMS = ("cond_simple", "donate_swap", "nested_while", "scalar_only", "zero_size")


@pytest.mark.parametrize("era", [era.letter for era in ERAS])
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_the_text_of_the_records_in_every_era(program: str, era: str) -> None:
    plan = hlomem.plan((XLA_GOLDENS / program / "module.hlo").read_text(), era=era)
    assert {file: plan.text(file) for file in plan.files} == plan.dump.texts()
    assert str(plan) == str(plan.dump)


def test_a_large_text_comes_in_several_pieces() -> None:
    steps = "\n".join(f"  %x.{n} = f32[] negate(%x.{n - 1})" for n in range(1, 1000))
    text = (
        "HloModule m, is_scheduled=true\n\nENTRY %main (x: f32[]) -> f32[] {\n"
        f"  %x.0 = f32[] parameter(0)\n{steps}\n  ROOT %y = f32[] negate(%x.999)\n}}\n"
    )
    plan = hlomem.plan(text, backend="cpu")
    for file, kind in plan.files.items():
        pieces = list(plan.pieces(file))
        assert "".join(pieces) == plan.text(file)
        assert (len(pieces) > 1) == (kind != "report")
