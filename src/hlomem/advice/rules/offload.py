"""`offload`: keep what a checkpointed loop stacks in the host's memory.

In: a program whose layers are checkpointed already, on a machine with memory of its own. Out:
advice to offload what its loop stacks for the backward pass. The temporaries are replayed without
it. At least five eighths of that: slices are on their way, and what was in fast memory is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.report.data.advice import Advice
from hlomem.report.data.phases import is_recomputed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Subject
    from hlomem.base.quantities import ValueId
    from hlomem.report.data.memory import Buffer

LINK = "https://docs.jax.dev/en/latest/notebooks/host-offloading.html"
_LEAST = 5 / 8
_HOW = """h = jax.ad_checkpoint.checkpoint_name(h, "h")  # first in {function}
policy = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[], names_which_can_be_offloaded=["h"],
    offload_src="device", offload_dst="pinned_host")
jax.checkpoint({function}, policy=policy){where}"""


def advise_offload(subject: Subject) -> Iterator[Advice]:
    """One advice for all that the loop stacks."""
    layers = subject.layers
    memory = subject.memory
    if (
        layers is None
        or not layers.is_loop
        or subject.machine.is_host
        or not _is_checkpointed(subject)
    ):
        return
    gone: dict[ValueId, tuple[Buffer, ...]] = {}
    for buffer in layers.kept:
        family = memory.family(memory.joined.placed_by_id[buffer.id])
        gone |= dict.fromkeys([placed.id for placed in family], ())
    saved = subject.replay.saved(gone)
    function = layers.function.rpartition(".")[2] or "layer"
    where = f"  # called at {layers.place}" if layers.place else ""
    yield Advice(
        rule="offload",
        title=f"offload what {layers.number} layers keep for the backward pass to the host:"
        f" {format_bytes(layers.size)}",
        least=round(saved * _LEAST),
        most=saved + subject.replay.holes,
        method="counted",
        confidence="medium",
        cost="time, where copies to the host and back are slower than the layers",
        how=_HOW.format(function=function, where=where),
        link=LINK,
    )


def _is_checkpointed(subject: Subject) -> bool:
    return any(is_recomputed(buffer.op_name) for buffer in subject.memory.buffers)
