"""Plans of one program in many ways: what is kept from one to the next changes no answer."""

from __future__ import annotations

import random
import re
from functools import cache, partial
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import hlomem
from hlomem import hlo
from hlomem.assign.packing import pack_best, pack_by_time
from hlomem.assign.preset import NO_PRESET
from hlomem.base.errors import EditError
from hlomem.dump.eras import Features, era_of
from hlomem.hlo.ir import HloComputation, HloInstruction
from hlomem.hlo.resize import resized_arrays
from hlomem.hlo.rewrite import Rewriter
from hlomem.hlo.scaling import Growth
from hlomem.hlo.schedule import Schedule, running_computations
from hlomem.hlo.text.attributes import InputOutputAlias
from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.machines.releases import find_release
from hlomem.pipeline import Stages, in_text_order, start_stages
from hlomem.write.build import build_contents
from hlomem.write.plan_text import PlanText
from tests.golden_programs import GoldenProgram
from tests.hlo.test_scaling import SIZED, module_at, sizes_of
from tests.places import GOLDENS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FOLDERS = (
    "jaxlib-0.12.0.1/cpu",
    "jaxlib-0.11.2/gpu-h200",
    "libtpu-0.0.51/tpu-v5e",
    "libtpu-0.0.34",
)
PROGRAMS = [
    GoldenProgram(path.parent)
    for folder in FOLDERS
    for path in sorted((GOLDENS / "xla" / folder).rglob("module.hlo"))
]


@cache
def planned(program: GoldenProgram) -> Stages:
    """The stages of a program, all computed."""
    stages = program.start(hlo.parse(program.text))
    stages.compute()
    return stages


def shuffled(
    stages: Stages, chance: random.Random, share: float
) -> dict[HloComputation, list[HloInstruction]]:
    """Orders in which some instructions run as late as those that need them allow."""
    orders = {}
    for computation in running_computations(stages.module):
        if chance.random() < share:
            orders[computation] = _legal_order(stages, computation, chance)
    return orders


def _legal_order(
    stages: Stages, computation: HloComputation, chance: random.Random
) -> list[HloInstruction]:
    before = stages.schedule.sequence(computation)
    waiting = {
        instruction: {*instruction.operands, *instruction.control_predecessors} & set(before)
        for instruction in before
    }
    order: list[HloInstruction] = []
    ready = [each for each in before if not waiting[each]]
    while ready:
        # Mostly as before, so that some stretches stay as they are.
        chosen = ready.pop(0 if chance.random() < 0.8 else chance.randrange(len(ready)))
        order.append(chosen)
        freed = [each for each in before if chosen in waiting[each]]
        for each in freed:
            waiting[each].discard(chosen)
        ready += [each for each in freed if not waiting[each]]
    return order


def outline(stages: Stages) -> dict[str, Any]:
    """Everything about a plan that an order may change."""
    live = stages.live_ranges
    return {
        "sequence": [instruction.name for instruction in live.sequence],
        "ranges": [(value.id, tuple(range_)) for value, range_ in live.range_of.items()],
        "spans": {computation.name: span for computation, span in live.span_of.items()},
        "done": {computation.name: time for computation, time in live.done_time.items()},
        "peak": stages.peak,
        "allocations": [
            (
                each.index,
                each.size,
                each.color,
                each.is_thread_local,
                each.is_tuple,
                each.is_constant,
                each.maybe_live_out,
                each.parameter,
                [(value.id, place) for value, place in each.slices.items()],
            )
            for each in stages.assignment.allocations
        ],
    }


def anew(stages: Stages, schedule: Schedule, **others: Any) -> Stages:
    """The same plan, with nothing known before."""
    return start_stages(stages.module, stages.options, schedule, preset=stages.preset, **others)


@settings(max_examples=40)
@given(
    st.sampled_from(PROGRAMS),
    st.randoms(use_true_random=False),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.booleans(),
)
def test_a_plan_in_another_order_is_the_plan_made_anew(
    program: GoldenProgram, chance: random.Random, share: float, goes_on: bool
) -> None:
    stages = planned(program)
    orders = shuffled(stages, chance, share)
    again = stages.rescheduled(Schedule(orders))
    if goes_on:  # from one order to the next
        assert again.peak == anew(stages, Schedule(orders)).peak
        orders = orders | shuffled(again, chance, share)
        again = again.rescheduled(Schedule(orders))
    assert outline(again) == outline(anew(stages, Schedule(orders)))


def moved(stages: Stages, chance: random.Random) -> dict[Any, list[HloInstruction]]:
    """One instruction of one computation somewhere else, as far as what it needs allows."""
    orders = {
        computation: list(stages.schedule.sequence(computation))
        for computation in stages.live_ranges.span_of
    }
    order = orders[chance.choice(list(orders))]
    instruction = chance.choice(order)
    place_of = {other: place for place, other in enumerate(order)}
    needed = [*instruction.operands, *instruction.control_predecessors]
    needing = [
        other for other in order if instruction in (*other.operands, *other.control_predecessors)
    ]
    first = max((place_of[other] + 1 for other in needed), default=0)
    last = min((place_of[other] for other in needing), default=len(order)) - 1
    order.insert(chance.randint(first, last), order.pop(place_of[instruction]))
    return orders


@settings(max_examples=80)
@given(st.sampled_from(PROGRAMS), st.randoms(use_true_random=False), st.integers(1, 3))
def test_a_plan_with_one_instruction_elsewhere_is_the_plan_made_anew(
    program: GoldenProgram, chance: random.Random, moves: int
) -> None:
    again = stages = planned(program)
    assert stages.assignment
    for _ in range(moves):
        orders = moved(again, chance)
        again = again.rescheduled(Schedule(orders))
        assert outline(again) == outline(anew(stages, Schedule(orders)))


@settings(max_examples=20)
@given(st.sampled_from(PROGRAMS), st.sampled_from([pack_best, pack_by_time, None]))
def test_a_plan_packed_otherwise_is_the_plan_made_anew(program: GoldenProgram, pack: Any) -> None:
    stages = planned(program)
    again = stages.repacked(pack)
    assert again.live_ranges is stages.live_ranges
    assert outline(again) == outline(anew(stages, stages.schedule, pack=pack))


@settings(max_examples=10)
@given(st.sampled_from(PROGRAMS), st.randoms(use_true_random=False))
def test_the_order_before_stays_as_it_was(program: GoldenProgram, chance: random.Random) -> None:
    stages = planned(program)
    before = outline(stages)
    outline(stages.rescheduled(Schedule(shuffled(stages, chance, 1.0))))
    assert outline(stages) == before


def donations(stages: Stages, chance: random.Random) -> list[InputOutputAlias]:
    """Some of a program's donations, and some that could be made."""
    module = stages.module
    aliases = [alias for alias in module.input_output_alias if chance.random() < 0.7]
    outputs = {alias.output_index for alias in aliases}
    parameters = {(alias.parameter_number, alias.parameter_index) for alias in aliases}
    shape = module.entry.root.shape
    pairs = [
        (index, number, inner)
        for index in shape.parts.indices
        for number, parameter in enumerate(module.entry.parameters)
        for inner in parameter.shape.parts.indices
        if shape.subshape(index).is_array
        and shape.subshape(index).text_without_layout
        == parameter.shape.subshape(inner).text_without_layout
    ]
    for index, number, inner in chance.sample(pairs, len(pairs)):
        if index not in outputs and (number, inner) not in parameters and chance.random() < 0.5:
            aliases.append(InputOutputAlias(index, number, inner, must_alias=False))
            outputs.add(index)
            parameters.add((number, inner))
    return aliases


@settings(max_examples=60)
@given(st.sampled_from(PROGRAMS), st.randoms(use_true_random=False), st.booleans())
def test_a_plan_with_other_donations_is_the_plan_made_anew(
    program: GoldenProgram, chance: random.Random, by_text: bool
) -> None:
    stages = planned(program)
    if by_text:
        stages = anew(stages, stages.schedule, order_lists=in_text_order)
        stages.compute()
    before = outline(stages)
    aliases = donations(stages, chance)
    again = stages.donated(aliases)
    text = hlo.format_module(again.module)
    module = hlo.parse(text)
    assert list(module.input_output_alias) == aliases
    made = start_stages(
        module,
        stages.options,
        order_in(module, stages),
        preset=stages.preset,
        order_lists=stages.order_lists,
    )
    assert outline(again) == outline(made)
    assert outline(stages) == before


def order_in(module: hlo.HloModule, stages: Stages) -> Schedule:
    """The order of a program in another module of the same names."""
    names = {computation.name: computation for computation in module.computations}
    return Schedule(
        {
            names[computation.name]: in_module(names[computation.name], order)
            for computation in stages.live_ranges.span_of
            if (order := stages.schedule.sequence(computation))
        }
    )


def in_module(computation: HloComputation, order: Sequence[HloInstruction]) -> list[HloInstruction]:
    """The instructions of the same names in another module."""
    by_name = {instruction.name: instruction for instruction in computation.instructions}
    return [by_name[instruction.name] for instruction in order]


def test_a_donation_keeps_the_values() -> None:
    stages = anew(planned(PROGRAMS[0]), planned(PROGRAMS[0]).schedule, order_lists=in_text_order)
    again = stages.donated(stages.module.input_output_alias)
    assert again.dataflow.values is stages.dataflow.values
    assert again.module.computations is stages.module.computations


@cache
def without_preset(program: GoldenProgram) -> Stages:
    """The stages of a program of which nothing was placed before."""
    return replace(planned(program), preset=NO_PRESET)


EXTENTS = re.compile(r"(?<=[a-z0-9]\[)[0-9,<=]+(?=\])")


def grown(text: str, old: int, new: int) -> str:
    """A text, a shape, with another size for every dimension of one."""
    return EXTENTS.sub(lambda match: re.sub(rf"\b{old}\b", str(new), match[0]), text)


@settings(max_examples=60)
@given(st.sampled_from(PROGRAMS), st.randoms(use_true_random=False), st.integers(1, 7))
def test_a_plan_with_other_extents_is_the_plan_made_anew(
    program: GoldenProgram, chance: random.Random, factor: int
) -> None:
    stages = without_preset(program)
    extents = {size for array in stages.arrays for size in array.dimensions}
    old = chance.choice(sorted(extents - {1}) or [1])
    new = old * factor + chance.choice([0, 1])
    shapes = {array: parse_shape_text(grown(array.text, old, new)) for array in stages.arrays}
    if stages.why_not_resized(shapes):
        return
    again = stages.resized(shapes)
    module = hlo.parse(grown(program.text, old, new))
    made = start_stages(module, stages.options, order_in(module, stages))
    assert outline(again) == outline(made)
    assert outline(again.repacked(pack_by_time)) == outline(made.repacked(pack_by_time))
    moved_on = again.rescheduled(Schedule(shuffled(again, chance, 0.5)))
    assert outline(moved_on) == outline(made.rescheduled(order_in(module, moved_on)))


@pytest.mark.parametrize("program", PROGRAMS[::3], ids=str)
def test_a_plan_with_a_dimension_of_another_size_is_that_of_the_edited_module(
    program: GoldenProgram,
) -> None:
    stages = without_preset(program)
    for old in sorted({size for array in stages.arrays for size in array.dimensions} - {1}):
        rewriter = Rewriter(stages.module)
        try:
            rewriter.resize(old, 3 * old)
        except EditError as error:
            with pytest.raises(EditError, match=re.escape(str(error))):
                resized_arrays(stages.module, old, 3 * old)
            continue
        module = hlo.parse(hlo.format_module(rewriter.finish()))
        shapes = resized_arrays(stages.module, old, 3 * old)
        if not stages.why_not_resized(shapes):
            made = start_stages(module, stages.options, order_in(module, stages))
            assert outline(stages.resized(shapes)) == outline(made)


@pytest.mark.parametrize("program", SIZED, ids=lambda path: path.name)
def test_a_plan_at_a_third_size_is_that_of_xla(program: Path) -> None:
    for one, other, third in permutations(sizes_of(program), 3):
        stages = start_stages(module_at(program, one))
        shapes = Growth(stages.module, module_at(program, other), (one, other)).shapes_at(third)
        assert shapes is not None
        again = stages.resized(shapes)
        assert outline(again) == outline(start_stages(module_at(program, third)))
        assert again.dataflow is stages.dataflow
        written = hlomem.load(program / str(third)).assignment
        assert written is not None
        assert [
            (each.index, each.size, {value.id: (value.offset, value.size) for value in each.values})
            for each in written.allocations
        ] == [
            (each.index, each.size, {value.id: tuple(at) for value, at in each.slices.items()})
            for each in again.assignment.allocations
        ]


def test_a_plan_says_why_it_cannot_be_resized() -> None:
    for folder, said in (("gpu-h200", "count elements"), ("tpu-v5e", "were placed before")):
        program = next(program for program in PROGRAMS if program.home.parent.name == folder)
        with pytest.raises(EditError, match=said):
            planned(program).resized({})
    stages = start_stages(module_at(GOLDENS / "sizes" / "train_step", 2))
    weight, other = parse_shape_text("f32[100,200]{1,0}"), parse_shape_text("f32[200,300]{1,0}")
    assert {weight, other} <= stages.arrays
    assert "would be alike" in stages.why_not_resized({weight: other})
    assert "more than extents" in stages.why_not_resized({weight: parse_shape_text("f32[7]{0}")})
    assert not stages.why_not_resized({weight: other, other: weight})


def test_a_resized_plan_is_not_written() -> None:
    stages = planned(PROGRAMS[0])
    [array, *_] = [array for array in stages.arrays if array.rank]
    again = stages.resized({array: parse_shape_text(grown(array.text, array.dimensions[0], 12345))})
    for write in (
        partial(build_contents, features=Features()),
        partial(PlanText, era=era_of(find_release("K", "jaxlib"))),
    ):
        with pytest.raises(EditError, match="plan its module"):
            write(again)


@pytest.mark.parametrize("kept", ["dataflow", "aliasing", "timeless"])
def test_what_no_order_changes_is_kept(kept: str) -> None:
    stages = planned(PROGRAMS[0])
    assert getattr(stages.rescheduled(stages.schedule), kept) is getattr(stages, kept)
