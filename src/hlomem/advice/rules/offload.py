"""`offload`: keep what a checkpointed scan stacks in host memory; a possibility.

Applies to programs whose layers are already checkpointed, on devices with their own memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.advice.code import OFFLOADED, OFFLOADED_IMPORT
from hlomem.advice.functions import find_loops, is_checkpointed, last_parts
from hlomem.report.data.advice import Advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case
    from hlomem.advice.functions import Loop

LINK = "https://docs.jax.dev/en/latest/notebooks/host-offloading.html"


def advise_offload(subject: Case) -> Iterator[Advice]:
    """One advice for the loop that stacks most."""
    if subject.machine.is_host or not is_checkpointed(subject.memory):
        return
    for loop in find_loops(subject.memory)[:1]:
        code = OFFLOADED.strip("\n")
        yield Advice(
            rule="offload",
            title=describe_offload(loop),
            method="possible",
            confidence="low",
            cost="time, if transfers to the host and back are slower than the layers",
            how=f"import jax\n{OFFLOADED_IMPORT}\n{code}\n\n# jax.lax.scan(offloaded(body), …)",
            link=LINK,
        )


def describe_offload(loop: Loop) -> str:
    """The title of an advice to offload what a loop stacks."""
    where = f"{last_parts(loop.file)}:{loop.line}"
    return f"keep the carries of the scan at {where} in the host's memory"
