"""Rules whose bytes are counted: logits, caches, offloading, padding, types."""

from __future__ import annotations

from tests.advice.trial_goldens import advice_of, advised


def test_logits_are_named_with_their_line() -> None:
    advice = advice_of("tpu/gpt", "logits")
    assert "f32[8,256,32000] at mymodel/gpt.py:" in advice.title
    assert "jax.lax.scan(chunk, " in advice.how


def test_the_width_of_layers_is_no_vocabulary() -> None:
    for name in ("tpu/fsdp", "cpu/conv", "tpu/conv"):
        assert "logits" not in {each.rule for each in advised(name).advice}


def test_a_cache_that_is_scanned_is_to_be_carried() -> None:
    advice = advice_of("tpu/decode_donate", "carry", "decode")
    assert advice.argument == "kcache, vcache"
    assert 256 * 2**20 * 0.99 <= advice.least <= advice.most <= 256 * 2**20 * 1.2


def test_gradients_that_a_scan_stacks_are_no_cache() -> None:
    for name in ("tpu/fsdp", "tpu/fsdp_offload"):
        assert "carry" not in {each.rule for each in advised(name).advice}


def test_only_what_a_checkpointed_loop_keeps_is_offloaded() -> None:
    advice = advice_of("tpu/fsdp", "offload")
    assert 'names_which_can_be_offloaded=["h"]' in advice.how
    assert "jax.checkpoint(layer, policy=policy)" in advice.how
    for name in ("tpu/fsdp_offload", "tpu/gpt_remat", "cpu/gpt_remat"):
        assert "offload" not in {each.rule for each in advised(name).advice}


def test_padding_names_dimensions_to_fold() -> None:
    heads = advice_of("tpu/decode", "padding", "decode")
    assert heads.how.startswith("fold dimensions 3 and 4: x.reshape(8, 8, 1024, 512)")
    channels = advice_of("tpu/conv", "padding")
    assert channels.how.startswith("128 channels instead of 32, or blocks of 2 × 2 pixels")


def test_on_a_cpu_no_bytes_are_promised_for_bf16() -> None:
    assert "narrow" not in {each.rule for each in advised("cpu/gpt_donate").advice}
    advice = advice_of("tpu/gpt_donate", "narrow")
    assert advice.confidence == "low"
    assert "parameters in f32" in advice.title
