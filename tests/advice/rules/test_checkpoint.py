"""Recomputation: which layer, where, in which framework; no bytes are promised."""

from __future__ import annotations

from hlomem.advice.code import NOTHING
from tests.advice.trial_goldens import advice_of, advised


def test_a_module_of_flax_is_named_with_the_line_that_calls_it() -> None:
    advice = advice_of("cpu/gpt_donate", "checkpoint")
    imports, code = advice.how.splitlines()
    assert imports == "import flax.linen as nn"
    assert code.startswith("Block = nn.remat(Block)  # called at mymodel/gpt.py:")
    assert (advice.method, advice.least, advice.got) == ("possible", None, None)


def test_layers_that_are_recomputed_already_get_a_policy() -> None:
    for name in ("cpu/gpt_remat", "tpu/gpt_remat", "tpu/fsdp"):
        for each in advised(name).advice:
            if each.rule == "checkpoint":
                assert each.argument == NOTHING
                assert f"policy=jax.checkpoint_policies.{NOTHING}" in each.how
