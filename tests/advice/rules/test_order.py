"""Orders: what the pass would save is advised, in the program as XLA scheduled it."""

from __future__ import annotations

from hlomem.api.advise import advise
from hlomem.api.improve import improve
from tests.opt.orders.programs import CPU
from tests.places import GOLDENS

WIDE = """HloModule m, is_scheduled=true

ENTRY %main (a: f32[1024]) -> f32[3] {
  %a = f32[1024]{0} parameter(0)
  %one = f32[1024]{0} custom-call(%a), custom_call_target="one"
  %two = f32[1024]{0} custom-call(%a), custom_call_target="two"
  %three = f32[1024]{0} custom-call(%a), custom_call_target="three"
  %x = f32[1]{0} custom-call(%one), custom_call_target="x"
  %y = f32[1]{0} custom-call(%two), custom_call_target="y"
  %z = f32[1]{0} custom-call(%three), custom_call_target="z"
  ROOT %all = f32[3]{0} concatenate(%x, %y, %z), dimensions={0}
}
"""


def test_an_order_that_saves_is_advised_with_what_it_saves() -> None:
    [advice] = [each for each in advise(WIDE, backend="cpu").advice if each.rule == "order"]
    found = improve(WIDE, backend="cpu").report
    assert advice.least == advice.most == found.saves
    assert found.saves > 4096
    assert "hlomem.jax.optimize()" in advice.how


def test_a_program_in_the_best_order_is_left_alone() -> None:
    better = improve(WIDE, backend="cpu").text()
    assert not [each for each in advise(better, backend="cpu").advice if each.rule == "order"]


def test_no_flag_is_advised() -> None:
    for home in sorted(CPU.iterdir())[:12]:
        text = (home / "module.hlo").read_text()
        assert not any("xla_" in advice.how for advice in advise(text, backend="cpu").advice)


def test_a_tpus_program_whose_places_are_chosen_is_not_told_to_change_its_order() -> None:
    [path] = (GOLDENS / "trials/tpu/lost").glob("*jit_f.*after_optimizations.txt")
    report = advise(path.read_text(), backend="tpu", chip="v5e")
    assert not [each for each in report.advice if each.rule == "order"]


def test_no_bytes_are_promised_where_barriers_of_a_checkpoint_were_expanded() -> None:
    name = 'metadata={op_name="jit(f)/transpose(jvp())/checkpoint/rematted_computation/sin"}'
    text = WIDE.replace('target="one"', f'target="one", {name}')
    [advice] = [each for each in advise(text, backend="cpu").advice if each.rule == "order"]
    assert (advice.method, advice.least, advice.most) == ("possible", None, None)
