"""`hlomem.plan` as a library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import hlomem
from hlomem.assign.packing import BufferInterval, Packing
from hlomem.base.errors import CommandError, InputError
from hlomem.pipeline import start_stages
from tests.check.faults import rebuilt
from tests.places import GOLDENS

XLA = GOLDENS / "xla"
MODULES = sorted(XLA.glob("*/cpu/*/module.hlo"))
SCHEDULED = [path for path in MODULES if "is_scheduled=true" in path.read_text()]
NUMBERED = re.compile(r"%([\w\-]+(?:\.[\w\-]+)*?)\.(\d+)\b")
WITH_NUMBERS = [path for path in SCHEDULED if NUMBERED.search(path.read_text())]


def _text(path: Path) -> str:
    return path.read_text()


@pytest.mark.parametrize("path", SCHEDULED, ids=lambda p: "/".join(p.parts[-4:-1]))
def test_live_values_never_share_bytes_unless_one_buffer_holds_both(path: Path) -> None:
    """An overlap check of its own: it knows allocations, live ranges and buffers, no planner."""
    stages = hlomem.plan(_text(path), backend="cpu", era=path.parts[-4]).stages
    ranges = stages.live_ranges.range_of
    buffer_of = {value: buffer for buffer in stages.aliasing.buffers for value in buffer.values}
    for allocation in stages.assignment.allocations:
        placed = [
            (value, offset, offset + size, *ranges[value])
            for value, (offset, size) in allocation.slices.items()
            if value in ranges and size
        ]
        for i, (one, low, high, start, end) in enumerate(placed):
            for two, low2, high2, start2, end2 in placed[:i]:
                if buffer_of[one] is buffer_of[two]:
                    continue
                overlaps_in_bytes = low < high2 and low2 < high
                overlaps_in_time = start < end2 and start2 < end
                assert not (overlaps_in_bytes and overlaps_in_time), (one, two)


@pytest.mark.parametrize("path", SCHEDULED, ids=lambda p: "/".join(p.parts[-4:-1]))
def test_the_same_text_gives_the_same_bytes(path: Path) -> None:
    one, other = (hlomem.plan(_text(path), backend="cpu") for _ in range(2))
    assert str(one) == str(other)


@pytest.mark.parametrize("path", WITH_NUMBERS, ids=lambda p: "/".join(p.parts[-4:-1]))
def test_renumbering_the_instructions_changes_names_alone(path: Path) -> None:
    """Names tell in which order XLA made the instructions, so their order stays; no more does."""
    text = _text(path)
    renumbered = NUMBERED.sub(_add_a_thousand, text)
    plan, other = (
        hlomem.plan(each, backend="cpu", era=path.parts[-4]).dump for each in (text, renumbered)
    )
    assert plan.assignment is not None
    assert other.assignment is not None
    for one, two in zip(plan.assignment.allocations, other.assignment.allocations, strict=True):
        assert (one.index, one.size) == (two.index, two.size)
        assert [(v.id, v.offset, v.size) for v in one.values] == [
            (v.id, v.offset, v.size) for v in two.values
        ]


def _add_a_thousand(name: re.Match[str]) -> str:
    return f"%{name[1]}.{int(name[2]) + 1000}"


@pytest.mark.parametrize(
    ("home", "of_its_time"),
    [
        ("jaxlib-0.4.34/cpu/carried_scalars", "jaxlib-0.4.24"),  # buffers lie closer than in 0.4.35
        ("jaxlib-0.9.0/cpu/narrow_reductions", "jaxlib-0.7.1"),  # rewriters came last until 0.9.0.1
        ("jaxlib-0.9.1/cpu/narrow_reductions", "jaxlib-0.9.1"),
        ("jaxlib-0.11.1/cpu/sorted_twice", "jaxlib-0.11.1"),  # sorts thread-local buffers
    ],
)
def test_like_a_dump_means_its_allocations_too(home: str, of_its_time: str) -> None:
    """Within an era the rules changed; the newest release alone would give another plan."""
    dump = hlomem.load(XLA / home)
    text = _text(XLA / home / "module.hlo")
    planned = hlomem.plan(text, like=dump)
    assert planned.stages.options == hlomem.plan(text, era=of_its_time).stages.options
    assert planned.dump.era == dump.era


def test_like_a_dump_of_another_program_means_the_newest_of_its_era() -> None:
    dump = hlomem.load(XLA / "jaxlib-0.9.0/cpu/narrow_reductions")
    text = _text(XLA / "jaxlib-0.7.2/cpu/nested_while/module.hlo")
    newest = hlomem.plan(text, era=dump.era.letter)
    assert hlomem.plan(text, like=dump).stages.options == newest.stages.options


def test_a_backend_whose_rules_are_not_known_is_refused() -> None:
    text = _text(XLA / "jaxlib-0.11.2/gpu-h200/scalar_only/module.hlo")
    with pytest.raises(CommandError, match="unknown backend `npu`: known are cpu, gpu"):
        hlomem.plan(text, backend="npu")


def test_stages_can_be_run_to_any_point() -> None:
    text = _text(XLA / "jaxlib-0.12.0.1/cpu/nested_while/module.hlo")
    stages = start_stages(hlomem.hlo.parse(text))
    assert stages.live_ranges.end == 45
    assert "assignment" not in vars(stages)


def test_another_packer_can_be_handed_in() -> None:
    text = _text(XLA / "jaxlib-0.12.0.1/cpu/nested_while/module.hlo")
    seen: list[int] = []

    def side_by_side(buffers: Sequence[BufferInterval], alignment: int) -> Packing:
        seen.append(len(buffers))
        offsets, end = {}, 0
        for buffer in buffers:
            offsets[buffer.id] = end
            end += -(-buffer.size // alignment) * alignment
        return Packing(offsets, end)

    mine = hlomem.plan(text, pack=side_by_side)
    assert seen
    assert mine.dump.values is not None
    theirs = hlomem.plan(text).dump.values
    assert theirs is not None
    assert mine.dump.values.total_bytes > theirs.total_bytes


BY_HAND = """\
HloModule m, is_scheduled=true

ENTRY %main (a: f32[{size}]) -> f32[{size}] {{
  %a = f32[{size}]{{0}} parameter(0)
  ROOT %n = f32[{size}]{{0}} negate(%a)
}}
"""


def test_the_machine_is_inferred_and_named_with_the_reason() -> None:
    plan = hlomem.plan(_text(next(XLA.glob("jaxlib-0.11.2/gpu-h200/*/module.hlo"))))
    assert plan.stages.options.machine.name == "gpu"
    assert plan.notes[0] == "planned for gpu: its instructions have operation queues"


def test_what_is_given_is_not_inferred() -> None:
    plan = hlomem.plan(BY_HAND.format(size=8), backend="gpu", chip="H200", era="jaxlib-0.11.2")
    assert plan.stages.options.machine.name == "gpu-h200"
    assert plan.notes == ()
    assert hlomem.plan(BY_HAND.format(size=8), chip="v6e").stages.options.machine.name == "tpu-v6e"


def test_a_machine_that_cannot_be_told_is_asked_for() -> None:
    with pytest.raises(CommandError, match=r"does not tell for which machine.* as the backend"):
        hlomem.plan(BY_HAND.format(size=8))


def test_a_chip_that_cannot_be_told_does_not_matter_where_all_plan_alike() -> None:
    tiled = BY_HAND.format(size=1024).replace("{0}", "{0:T(1024)}")
    plan = hlomem.plan(tiled.replace("T(1024)} negate", "T(1024)S(1)} negate"))
    alike = "tpu-v5e, tpu-v5p, tpu-v6e, tpu-tpu7x plan it alike"
    why = f"its layouts are tiled, values lie in VMEM; {alike}"
    assert plan.notes[0] == f"planned for tpu-v5e: {why}"


def test_a_chip_that_cannot_be_told_is_asked_for_where_it_matters() -> None:
    text = _text(XLA / "libtpu-0.0.51/tpu-v5e/donate_mixed/module.hlo")
    with pytest.raises(CommandError, match=r"layouts are tiled.* v5e, v5p, v6e, tpu7x as the chip"):
        hlomem.plan(text)


def test_a_dump_of_the_program_tells_its_chip() -> None:
    folder = XLA / "libtpu-0.0.51/tpu-v5e/donate_mixed"
    plan = hlomem.plan(_text(folder / "module.hlo"), preset=hlomem.load(folder))
    assert plan.stages.options.machine.name == "tpu-v5e"


@pytest.mark.parametrize(
    ("backend", "era", "nearest"),
    [
        ("gpu", "jaxlib-0.4.20", "jaxlib-0.11.2, the only release known"),
        ("cpu", "jaxlib-9.9", "jaxlib-0.12.0.1, the newest known"),
    ],
)
def test_rules_of_a_release_that_are_not_known_are_said(
    backend: str, era: str, nearest: str
) -> None:
    plan = hlomem.plan(BY_HAND.format(size=8), backend=backend, era=era)
    problem = f"what {era} does differently on {backend} is not known"
    assert plan.notes == (f"{problem}: planned with {backend} rules of {nearest}",)


NESTED = XLA / "jaxlib-0.12.0.1" / "cpu" / "nested_while"


def test_a_plan_is_its_files_and_shows_itself_in_notebooks() -> None:
    made = hlomem.plan(_text(NESTED / "module.hlo"), backend="cpu")
    assert str(made) == "".join(made.text(name) for name in made.files)
    assert "<iframe" in made._repr_html_()


def test_an_order_of_lists_nobody_knows_is_refused() -> None:
    with pytest.raises(CommandError, match="unknown order `random`; known are xla, text"):
        hlomem.plan(_text(NESTED / "module.hlo"), backend="cpu", order="random")


def test_a_dump_that_lacks_what_is_asked_of_it_is_named() -> None:
    dump, text = hlomem.load(NESTED), _text(NESTED / "module.hlo")
    with pytest.raises(InputError, match="no live ranges, so no instruction sequence"):
        hlomem.plan(text, backend="cpu", schedule=rebuilt(dump, live_ranges=None))
    with pytest.raises(InputError, match="no allocations, so no preset offsets"):
        hlomem.plan(text, backend="tpu", chip="v5e", preset=rebuilt(dump, assignment=None))
