"""Planning again: what another order, donation, size or packing and a peak cost beside anew.

    python -m bench.bench_replan [--corpus ../shared] [--repeat 5]

"anew" is parsing and all stages, in one process, writing left out. "order" is a plan of the same
program after one instruction of its entry computation was moved as late as its users allow, "all"
one after all of them were put into another order, "peak" the most bytes alive after the one move,
"packing" a plan with another heap algorithm, "donation" one with the last donation taken back, or
with none where there is none, its lists in the order of the text, as for all who ask often, "size"
one with the extent that most arrays have doubled. The share is of "anew"; CPU ms, the best of
several in which all take turns. Then the heap alone: buffers of random sizes and lives, packed in
lists and, where it was built, natively.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hlomem import hlo
from hlomem.assign import best_fit, packing
from hlomem.assign.packing import BufferInterval, pack_best, pack_by_time
from hlomem.history.order import infer_order
from hlomem.hlo.schedule import Schedule
from hlomem.hlo.shape import Shape
from hlomem.pipeline import in_text_order, start_stages

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.ir import HloInstruction
    from hlomem.pipeline import OrderLists, Stages

    Place = Callable[..., list[int] | None]

SMALLEST = 1_000_000
NEAR = 8
"""The number of instructions, of those that became ready last, one of which comes next."""
HEAPS = (1_000, 10_000, 30_000)
SIZES = (64, 128, 4096, 1 << 16, 1 << 20, 1 << 22)


class Costs(NamedTuple):
    """CPU seconds."""

    anew: float
    order: float
    all: float
    donation: float
    peak: float
    packing: float
    size: float


def cpu_time(work: Callable[[], object]) -> float:
    """CPU seconds of one run."""
    gc.collect()
    gc.disable()
    start = time.process_time()
    work()
    spent = time.process_time() - start
    gc.enable()
    return spent


def plan(text: str, order_lists: OrderLists = infer_order) -> Stages:
    """All stages of a module."""
    stages = start_stages(hlo.parse(text), order_lists=order_lists)
    stages.compute()
    return stages


def moved(stages: Stages, chance: random.Random) -> Schedule:
    """The order of a program with one instruction of its entry moved behind some others."""
    entry = stages.module.entry
    order = list(stages.schedule.sequence(entry))
    place_of = {instruction: place for place, instruction in enumerate(order)}
    movable = [
        (place, last)
        for place, instruction in enumerate(order)
        if (last := min((place_of[user] for user in instruction.users), default=0) - 1) > place
    ]
    if movable:
        place, last = chance.choice(movable)
        order.insert(last, order.pop(place))
    return Schedule({entry: order})


def reordered(stages: Stages, chance: random.Random) -> Schedule:
    """The entry's instructions in another order: each at random among those that may come next."""
    entry = stages.module.entry
    order = stages.schedule.sequence(entry)
    missing = {instruction: len(needed_by(instruction)) for instruction in order}
    waiting: dict[HloInstruction, list[HloInstruction]] = {}
    for instruction in order:
        for needed in needed_by(instruction):
            waiting.setdefault(needed, []).append(instruction)
    ready = [instruction for instruction in order if not missing[instruction]]
    made: list[HloInstruction] = []
    while ready:
        made.append(ready.pop(chance.randrange(max(0, len(ready) - NEAR), len(ready))))
        for instruction in waiting.get(made[-1], ()):
            missing[instruction] -= 1
            if not missing[instruction]:
                ready.append(instruction)
    return Schedule({entry: made})


def grown(stages: Stages) -> dict[Shape, Shape]:
    """The arrays of a program with the extent that most of them have doubled, by themselves."""
    arrays = [shape for shape in stages.arrays if shape.is_array]
    extents = Counter(size for shape in arrays for size in {*shape.dimensions} if size > 1)
    found: dict[Shape, Shape] = {}
    for chosen, _ in extents.most_common():
        for shape in arrays:
            sizes = tuple([2 * size if size == chosen else size for size in shape.dimensions])
            found[shape] = Shape(shape.element_type, sizes, shape.dynamic, shape.layout)
        if not stages.why_not_resized(found):
            return found
    return {}


def needed_by(instruction: HloInstruction) -> set[HloInstruction]:
    """The instructions that must run before one."""
    return {*instruction.operands, *instruction.control_predecessors}


def measure(text: str, repeat: int) -> Costs:
    """The best of several."""
    chance = random.Random(1)  # noqa: S311 - not for secrets
    stages = plan(text)
    stages.dependents  # noqa: B018 - found once for all orders
    by_text = plan(text, in_text_order)
    best = [float("inf")] * len(Costs._fields)
    for _ in range(repeat):
        turn = measure_once(text, stages, by_text, chance)
        best = [min(old, new) for old, new in zip(best, turn, strict=True)]
    return Costs(*best)


def measure_once(text: str, stages: Stages, by_text: Stages, chance: random.Random) -> Costs:
    """Every way to plan once."""
    planned, looked_at = (stages.rescheduled(moved(stages, chance)) for _ in range(2))
    shuffled = stages.rescheduled(reordered(stages, chance))
    packed = stages.repacked(pack_by_time)
    shapes = grown(stages)
    aliases = by_text.module.input_output_alias[:-1]
    return Costs(
        cpu_time(lambda: plan(text)),
        cpu_time(lambda: planned.assignment),
        cpu_time(lambda: shuffled.assignment),
        cpu_time(lambda: by_text.donated(aliases).assignment),
        cpu_time(lambda: looked_at.peak),
        cpu_time(lambda: packed.assignment),
        cpu_time(lambda: stages.resized(shapes).assignment),
    )


def random_heap(count: int) -> list[BufferInterval]:
    """Buffers of which few live long."""
    chance = random.Random(count)  # noqa: S311 - not for secrets
    buffers = []
    for number in range(count):
        start = chance.randrange(2 * count)
        end = min(2 * count, start + int(3 * chance.paretovariate(0.7)))
        buffers.append(BufferInterval(number, chance.choice(SIZES), start, end))
    return buffers


def pack_with(place: Place, buffers: list[BufferInterval]) -> float:
    """CPU seconds of packing a heap by one of the two implementations."""
    chosen = best_fit.place
    setattr(packing, "place", place)  # noqa: B010 - not the module's own name
    spent = cpu_time(lambda: pack_best(buffers, 64))
    setattr(packing, "place", chosen)  # noqa: B010
    return spent


def print_heaps(repeat: int) -> None:
    """Lists beside the native heap."""
    print(f"\n{'buffers':>8} {'lists':>8} {'native':>8}    times")
    ways = [best_fit.place_in_lists, *([best_fit.place_natively] if best_fit.IS_NATIVE else [])]
    for count in HEAPS:
        buffers = random_heap(count)
        spent = [1000 * min(pack_with(way, buffers) for _ in range(repeat)) for way in ways]
        factor = f"{spent[0] / spent[1]:8.2f}" if best_fit.IS_NATIVE else "not built"
        print(f"{count:>8} {' '.join(f'{ms:8.1f}' for ms in spent)} {factor}", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    beside = Path(__file__).resolve().parent.parent.parent / "shared"
    parser.add_argument("--corpus", type=Path, default=beside)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    kind = "native" if best_fit.IS_NATIVE else "lists"
    print(f"Python {sys.version.split()[0]} ({sys.executable}), heap: {kind}")
    print(f"{'module':<28} {'anew':>7} {' '.join(f'{name:>14}' for name in Costs._fields[1:])}")
    for module in sorted(options.corpus.glob("real/cpu/*/module.hlo")):
        if module.stat().st_size < SMALLEST:
            continue
        costs = measure(module.read_text(encoding="utf-8"), options.repeat)
        shares = [f"{1000 * cost:7.1f} {cost / costs.anew:6.3f}" for cost in costs[1:]]
        print(f"{module.parent.name:<28} {1000 * costs.anew:7.0f} {' '.join(shares)}", flush=True)
    print_heaps(options.repeat)


if __name__ == "__main__":
    main()
