"""Programs XLA scheduled, as the tests of orders need them: stages, flows, random legal orders."""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING

from hlomem import hlo
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.opt.orders.flow import Flow, FlowBuilder
from hlomem.pipeline import Stages, in_text_order, start_stages
from tests.places import GOLDENS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hlomem.hlo.ir import HloComputation, HloInstruction

CPU = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu"
GPU = GOLDENS / "xla" / "jaxlib-0.11.2" / "gpu-h200"
HOMES: list[Path] = sorted(
    home for folder in (CPU, GPU) for home in folder.iterdir() if (home / "module.hlo").exists()
)
"""The goldens whose temporaries a better order may lower."""


def name_of(home: Path) -> str:
    return f"{home.parent.name}-{home.name}"


@cache
def stages_of(home: Path) -> Stages:
    """The stages of a golden, as the XLA that wrote it plans."""
    name, _, chip = home.parent.name.partition("-")
    version = tuple(map(int, home.parent.parent.name.removeprefix("jaxlib-").split(".")))
    machine = find_machine(name, chip)
    module = hlo.parse((home / "module.hlo").read_text())
    return start_stages(
        module, options_for(machine, Release("jaxlib", version)), order_lists=in_text_order
    )


@cache
def flows_of(home: Path) -> tuple[Flow, ...]:
    """The flows of a golden's computations, callees first; what they call needs nothing."""
    builder = FlowBuilder(stages_of(home))
    computations = builder.computations()
    return tuple(builder.build(each, dict.fromkeys(computations, 0)) for each in computations)


def random_order(flow: Flow, seed: int) -> list[int]:
    """A legal order of a flow's nodes, every one as likely to come up as the draws make it."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    waits = [len(needed) for needed in flow.before]
    ready = [node for node, count in enumerate(waits) if not count]
    order = []
    while ready:
        node = ready.pop(chance.randrange(len(ready)))
        order.append(node)
        for follower in flow.after[node]:
            waits[follower] -= 1
            if not waits[follower]:
                ready.append(follower)
    return order


def named(flow: Flow, order: Sequence[int]) -> dict[HloComputation, list[HloInstruction]]:
    return {flow.computation: [flow.nodes[node] for node in order]}


def iter_edges(flow: Flow) -> Iterator[tuple[int, int]]:
    for later, needed in enumerate(flow.before):
        for earlier in needed:
            yield earlier, later
