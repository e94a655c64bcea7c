"""Possibilities: logits, caches, offloading, padding, types; named, without bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.api.advise import advise
from tests.advice.trial_goldens import advice_of, advised

if TYPE_CHECKING:
    from hlomem.report.data.advice import Advice


def _possible(name: str, rule: str, function: str = "train_step") -> Advice:
    advice = advice_of(name, rule, function)
    assert (advice.method, advice.least, advice.most) == ("possible", None, None)
    return advice


def test_logits_are_named_with_their_line() -> None:
    advice = _possible("tpu/gpt", "logits")
    assert "f32[8,256,32000] at mymodel/gpt.py:" in advice.title
    assert "jax.lax.scan(chunk, " in advice.how


def test_the_width_of_layers_is_no_vocabulary() -> None:
    for name in ("tpu/fsdp", "cpu/conv", "tpu/conv"):
        assert "logits" not in {each.rule for each in advised(name).advice}


def test_a_cache_that_is_scanned_is_to_be_carried() -> None:
    assert _possible("tpu/decode_donate", "carry", "decode").argument == "kcache, vcache"


def test_gradients_that_a_scan_stacks_are_no_cache() -> None:
    for name in ("tpu/fsdp", "tpu/fsdp_offload"):
        assert "carry" not in {each.rule for each in advised(name).advice}


def test_only_what_a_checkpointed_loop_keeps_is_offloaded() -> None:
    advice = _possible("tpu/fsdp", "offload")
    assert 'names_which_can_be_offloaded=["carry"]' in advice.how
    for name in ("tpu/fsdp_offload", "tpu/gpt_remat", "cpu/gpt_remat"):
        assert "offload" not in {each.rule for each in advised(name).advice}


def test_padding_says_what_is_free_and_what_to_fold() -> None:
    heads = _possible("tpu/decode", "padding", "decode")
    assert "fold dimensions 3 and 4: x.reshape(8, 8, 1024, 512)" in heads.how
    assert "up to 128 instead of 64 in dimension 4 are free" in heads.how
    assert "blocks of 2 × 2 pixels" in _possible("tpu/conv", "padding").how


def test_bf16_is_possible_where_products_are_f32_but_not_on_a_cpu() -> None:
    assert "narrow" not in {each.rule for each in advised("cpu/gpt_donate").advice}
    assert "parameters in f32" in _possible("tpu/gpt_donate", "narrow").title
    assert "narrow" not in {each.rule for each in advised("tpu/gpt_bf16").advice}


NAMED = '{op_name="jit(f)/while/body/scatter-add" source_file="/home/wave.py" source_line=17}'
STACKED = """HloModule m, is_scheduled=true

ENTRY %main (x: f32[4,256,256], i: s32[]) -> f32[64,4,256,256] {
  %x = f32[4,256,256]{0,2,1:T(8,128)} parameter(0)
  %i = s32[]{:T(128)} parameter(1)
  %stack = f32[64,4,256,256]{1,3,2,0:T(8,128)} custom-call(), custom_call_target="AllocateBuffer"
  %new = f32[4,256,256]{0,2,1:T(8,128)} negate(%x), metadata={NAMED}
  %row = f32[1,4,256,256]{1,3,2,0:T(8,128)} bitcast(%new)
  ROOT %r = f32[64,4,256,256]{1,3,2,0:T(8,128)} dynamic-update-slice(%stack, %row, %i, %i, %i, %i)
}
"""


def test_a_layout_is_traced_to_the_operation_that_asked_for_it() -> None:
    """Room that is only allocated asks for nothing; a name stays though the opcode is another."""
    report = advise(STACKED.replace("{NAMED}", NAMED), backend="tpu", chip="v5e")
    [padding] = [each for each in report.advice if each.rule == "padding"]
    assert padding.how.startswith("the layout is that of scatter-add at home/wave.py:17: ")
