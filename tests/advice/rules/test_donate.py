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
    assert advice.least is not None
    assert advice.most is not None
    assert 0.7 * 4096 <= advice.least + 1 <= 4096 <= advice.most


STATE = "(s32[], s32[32,32]{1,0}, s32[32,32]{1,0}, f32[64,32]{1,0})"
TABLE = """%body {
  %state = STATE parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %table = s32[32,32]{1,0} get-tuple-element(%state), index=1
  %out = s32[32,32]{1,0} get-tuple-element(%state), index=2
  %cache = f32[64,32]{1,0} get-tuple-element(%state), index=3
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %zero = s32[] constant(0)
  %token = s32[1,32]{1,0} slice(%table), slice={[0:1], [0:32]}
  %more = s32[32,32]{1,0} dynamic-update-slice(%out, %token, %i, %zero)
  %new = f32[64,32]{1,0} add(%cache, %cache)
  ROOT %result = STATE tuple(%next, %table, %more, %new)
}

%condition {
  %state = STATE parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %n = s32[] constant(32)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (table: s32[32,32], cache: f32[64,32]) -> (s32[32,32], f32[64,32]) {
  %table = s32[32,32]{1,0} parameter(0), metadata={op_name="table"}
  %cache = f32[64,32]{1,0} parameter(1), metadata={op_name="cache"}
  %zero = s32[] constant(0)
  %empty = s32[32,32]{1,0} broadcast(%zero), dimensions={}
  %first = s32[32,32]{1,0} copy(%table)
  %second = f32[64,32]{1,0} copy(%cache)
  %start = STATE tuple(%zero, %first, %empty, %second)
  %loop = STATE while(%start), condition=%condition, body=%body
  %tokens = s32[32,32]{1,0} get-tuple-element(%loop), index=2
  %kept = f32[64,32]{1,0} get-tuple-element(%loop), index=3
  ROOT %results = (s32[32,32]{1,0}, f32[64,32]{1,0}) tuple(%tokens, %kept)
}
""".replace("STATE", STATE)


def test_a_table_that_only_has_the_shape_of_a_result_is_not_donated() -> None:
    [advice] = [
        each for each in advise(HEAD + TABLE, backend="cpu").advice if each.rule == "donate"
    ]
    assert advice.argument == "cache"
