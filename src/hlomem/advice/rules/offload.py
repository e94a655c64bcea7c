"""`offload`: keep what a checkpointed loop stacks in host memory.

At least five eighths are saved: slices in transit and in fast memory count as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.report.data.advice import Advice
from hlomem.report.data.phases import is_recomputed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case

LINK = "https://docs.jax.dev/en/latest/notebooks/host-offloading.html"
_LEAST = 5 / 8
_HOW = """h = jax.ad_checkpoint.checkpoint_name(h, "h")  # first in {function}
policy = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[], names_which_can_be_offloaded=["h"],
    offload_src="device", offload_dst="pinned_host")
jax.checkpoint({function}, policy=policy){where}"""


def advise_offload(subject: Case) -> Iterator[Advice]:
    layers = subject.layers
    if (
        layers is None
        or not layers.is_loop
        or subject.machine.is_host
        or not any(is_recomputed(buffer.op_name) for buffer in subject.memory.buffers)
    ):
        return
    saved = subject.replay.saved(subject.replay.without(layers.kept))
    function = layers.function.rpartition(".")[2] or "layer"
    where = f"  # called at {layers.caller}" if layers.caller else ""
    yield Advice(
        rule="offload",
        title=f"offload what {layers.number} layers keep for the backward pass to the host:"
        f" {format_bytes(layers.size)}",
        least=round(saved * _LEAST),
        most=saved + subject.replay.holes,
        cost="time, if transfers to the host and back are slower than the layers",
        how=_HOW.format(function=function, where=where),
        link=LINK,
    )
