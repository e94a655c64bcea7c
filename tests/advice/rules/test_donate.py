"""Donations: what to type, and which arguments are left out."""

from __future__ import annotations

from hlomem.api.advise import advise
from tests.advice.trial_goldens import advice_of, advised
from tests.conftest import GOLDENS

PAIRS = GOLDENS / "pairs"
HEAD = "HloModule m, is_scheduled=true\n\n"


def test_the_arguments_of_the_function_are_named() -> None:
    advice = advice_of("cpu/gpt", "donate")
    assert advice.how == 'jax.jit(train_step, donate_argnames=("params", "opt_state"))'
    assert advice.title == "donate params, opt_state (70 arrays)"
    assert advice_of("tpu/decode", "donate", "decode").argument == "kcache, vcache"


def test_arguments_without_names_are_numbered() -> None:
    advised = advise(HEAD + COPIED.replace("cache", "Arg_0.1"), backend="cpu")
    [advice] = [each for each in advised.advice if each.rule == "donate"]
    assert advice.how == "jax.jit(m, donate_argnums=(0,))"


def test_what_is_donated_is_not_advised() -> None:
    module = (PAIRS / "donation_dropped/before/module.hlo").read_text()
    for report in (advise(module), advised("cpu/gpt_donate"), advised("tpu/gpt_donate")):
        assert "donate" not in {each.rule for each in report.advice}


READ_LATE = """ENTRY %main (a: f32[1024], b: f32[1024]) -> (f32[1024], f32[]) {
  %a = f32[1024]{0} parameter(0)
  %b = f32[1024]{0} parameter(1)
  %sum = f32[1024]{0} add(%a, %b)
  %twice = f32[1024]{0} multiply(%sum, %a)
  %last = f32[1024]{0} add(%twice, %a)
  %part = f32[1]{0} slice(%last), slice={[0:1]}
  %scalar = f32[] bitcast(%part)
  ROOT %result = (f32[1024]{0}, f32[]) tuple(%sum, %scalar)
}
"""


def test_an_argument_read_after_the_result_is_written_is_not_donated() -> None:
    assert advise(HEAD + READ_LATE, backend="cpu").advice == ()


PRODUCT = """ENTRY %main (a: f32[32,32], b: f32[32,32]) -> f32[32,32] {
  %a = f32[32,32]{1,0} parameter(0)
  %b = f32[32,32]{1,0} parameter(1)
  ROOT %c = f32[32,32]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_a_product_is_not_written_over_what_it_multiplies() -> None:
    assert advise(HEAD + PRODUCT, backend="cpu").advice == ()


COPIED = """ENTRY %main (cache: f32[1024], new: f32[8]) -> f32[1024] {
  %cache = f32[1024]{0} parameter(0)
  %new = f32[8]{0} parameter(1)
  %zero = s32[] constant(0)
  %copy = f32[1024]{0} copy(%cache)
  ROOT %update = f32[1024]{0} dynamic-update-slice(%copy, %new, %zero)
}
"""


def test_a_copy_that_only_saves_an_argument_goes_with_the_donation() -> None:
    [advice] = [
        each for each in advise(HEAD + COPIED, backend="cpu").advice if each.rule == "donate"
    ]
    assert 0.9 * 4096 <= advice.least + 1 <= 4096 <= advice.most
