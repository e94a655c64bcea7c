"""A limit of scoped VMEM that no kernel needs: what it reserves is lost to other values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.report.data.advice import Advice
from hlomem.report.data.scoped import build_scoped, chip_of, lower_limit
from hlomem.view.scoped import LIMIT_FLAG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.advice.case import Case

LINK = "docs/kernels.md#the-limit-of-a-whole-program"


def advise_scoped(case: Case) -> Iterator[Advice]:
    """Lower the flag to the largest use of a kernel, or to the chip's default."""
    scoped = build_scoped(case.memory)
    lower = None if scoped is None else lower_limit(scoped, chip_of(case.memory))
    if scoped is None or scoped.limit is None or lower is None:
        return
    more = format_bytes(scoped.limit - lower)
    yield Advice(
        rule="scoped",
        title=f"lower {LIMIT_FLAG} from {scoped.limit // 1024} to {lower // 1024}: {more} more of"
        " VMEM for memory-space assignment",
        method="possible",
        confidence="medium",
        cost="fusions that XLA tiles for the limit may get smaller tiles",
        how=f'LIBTPU_INIT_ARGS="--{LIMIT_FLAG}={lower // 1024}"',
        link=LINK,
    )
