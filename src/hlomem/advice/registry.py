"""The rules of advice: one row each, in the order in which they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.advice.rules.carry import advise_carry
from hlomem.advice.rules.checkpoint import advise_checkpoint
from hlomem.advice.rules.donate import advise_donate
from hlomem.advice.rules.layout import advise_layout
from hlomem.advice.rules.logits import advise_logits
from hlomem.advice.rules.narrow import advise_narrow
from hlomem.advice.rules.offload import advise_offload
from hlomem.advice.rules.order import advise_order
from hlomem.advice.rules.padding import advise_padding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hlomem.advice.case import Subject
    from hlomem.report.data.advice import Advice

    Rule = Callable[[Subject], Iterator[Advice]]

RULES: Mapping[str, Rule] = {
    "donate": advise_donate,
    "order": advise_order,
    "checkpoint": advise_checkpoint,
    "logits": advise_logits,
    "carry": advise_carry,
    "offload": advise_offload,
    "padding": advise_padding,
    "layout": advise_layout,
    "narrow": advise_narrow,
}
"""By the name their advice has."""
