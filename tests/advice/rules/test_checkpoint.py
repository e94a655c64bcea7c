"""Recomputation: which layer, where, and with which policy."""

from __future__ import annotations

from hlomem.advice.rules.checkpoint import DOTS
from tests.advice.trial_goldens import advice_of, advised


def test_a_module_of_flax_is_named_with_the_line_that_calls_it() -> None:
    advice = advice_of("cpu/gpt_donate", "checkpoint")
    code, place = advice.how.split("  # called at ")
    assert code == "nn.remat(Block)"
    assert place.startswith("mymodel/gpt.py:")


def test_a_policy_saves_less_and_is_named() -> None:
    whole = advice_of("cpu/gpt_donate", "checkpoint")
    advice = advice_of("cpu/gpt_donate", "checkpoint", argument=DOTS)
    assert f"policy = jax.checkpoint_policies.{DOTS}" in advice.how
    assert advice.least < whole.least
    assert advice.most < whole.most


def test_layers_that_are_recomputed_already_are_not_advised_again() -> None:
    for name in ("cpu/gpt_remat", "tpu/gpt_remat", "tpu/fsdp"):
        assert "checkpoint" not in {each.rule for each in advised(name).advice}
