"""The program in one screen: module → values → buffers → live ranges → colors → allocations.

`Stages` is the pipeline: one property per stage, each computed from those above it when it is
first read. Read `live_ranges` and nothing is assigned; hand in another `pack` and the rest stays
XLA's.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hlomem.analysis.aliasing import Aliasing, HloBuffer, analyze_aliasing
from hlomem.analysis.call_graph import CallGraph
from hlomem.analysis.dataflow import Dataflow, analyze_dataflow
from hlomem.analysis.list_order import ListOrder, text_order
from hlomem.analysis.live_range import LiveRanges, analyze_live_ranges
from hlomem.analysis.machine_rules import rules_of
from hlomem.analysis.peak import PeakMoment, find_peak
from hlomem.assign.assigner import Known, assign_buffers
from hlomem.assign.colors import ColorOf, color_values
from hlomem.assign.preset import NO_PRESET, Preset
from hlomem.assign.problem import AS_WRITTEN, Timeless, state_timeless
from hlomem.base.errors import EditError, UnsupportedError
from hlomem.base.gc_pause import collector_off
from hlomem.history.order import infer_order
from hlomem.hlo.schedule import Schedule, schedule_of
from hlomem.hlo.verifier import verify_computations, verify_module
from hlomem.machines.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hlomem.analysis.moved_ranges import Dependents
    from hlomem.assign.allocation import BufferAssignment
    from hlomem.assign.simulator import Pack
    from hlomem.hlo.ir import HloModule
    from hlomem.hlo.shape import Shape
    from hlomem.hlo.text.attributes import InputOutputAlias

OrderLists: TypeAlias = "Callable[[CallGraph, Options], ListOrder]"

STAGES = ("call_graph", "order", "dataflow", "aliasing", "live_ranges", "colors", "assignment")
"""The stages in order, by the names they have in `Stages`."""
_SIZELESS = ("call_graph", "order", "dataflow", "aliasing", "colors", "live_ranges", "arrays")
"""Those that do not depend on sizes, if the same arrays stay alike."""
_UNSCHEDULED = ("call_graph", "order", "dataflow", "aliasing", "colors", "timeless")
"""Those that do not depend on the order of instructions."""


class Earlier(Struct, frozen=True):
    """A plan of the same program in another order."""

    live_ranges: LiveRanges
    waiting: frozenset[HloBuffer]
    """The buffers it left to heaps."""


class Stages(Struct, frozen=True, eq=False, dict=True):
    """Everything a plan finds out about a module."""

    module: HloModule
    schedule: Schedule
    options: Options
    pack: Pack | None = None
    """Instead of XLA's heap algorithm."""
    preset: Preset = NO_PRESET
    order_lists: OrderLists = infer_order
    """Puts the module's lists in order; `in_text_order` needs no history and moves no value."""
    before: LiveRanges | None = None
    """The live ranges in another order, to begin with."""
    earlier: Earlier | None = None
    """The plan in another order, to take decisions from."""
    shapes: Mapping[Shape, Shape] = AS_WRITTEN
    """The arrays that have other shapes than the module says, by those (`resized`)."""

    def compute(self, after_stage: Callable[[str], None] = lambda _: None) -> None:
        """Go through all stages; `after_stage` hears the name of each that is done."""
        with collector_off():
            for name in STAGES:
                getattr(self, name)
                after_stage(name)

    @property
    def is_planned(self) -> bool:
        """Whether all stages were gone through already."""
        return "assignment" in self.__dict__

    def rescheduled(self, schedule: Schedule) -> Stages:
        """The stages of the same program in another order; what no order changes is kept.

        Live ranges, if these are known, are looked at again only where something moved, and so are
        the buffers that were left to heaps, if all is assigned and one stretch of it moved.
        """
        before = self.__dict__.get("live_ranges", self.before)
        earlier = self._as_earlier if self.is_planned else self.earlier
        again = replace(self, schedule=schedule, before=before, earlier=earlier)
        self._hand_on(again, _UNSCHEDULED)
        if before is not None:
            again.__dict__["dependents"] = self.dependents
        return again

    def repacked(self, pack: Pack | None) -> Stages:
        """The same program and order, its heaps packed by another algorithm; the rest is kept."""
        again = replace(self, pack=pack)
        self._hand_on(again, (*_UNSCHEDULED, "live_ranges"))
        return again

    def donated(self, aliases: Iterable[InputOutputAlias]) -> Stages:
        """The stages of the same program with other donations: outputs in the memory of parameters.

        Values and their uses are kept, and live ranges but for values that lie with others.
        An inferred order of lists may depend on the header: only that of the text is kept.
        """
        from hlomem.analysis.moved_ranges import donate_live_ranges  # noqa: PLC0415 - few need it
        from hlomem.hlo.donations import with_donations  # noqa: PLC0415

        module = with_donations(self.module, aliases)
        again = replace(self, module=module, before=None, earlier=None)
        self._hand_on(again, ("call_graph",))
        if self.order_lists is not in_text_order:
            return again
        self._hand_on(again, ("order", "colors"))
        kept = again.__dict__
        dataflow = kept["dataflow"] = replace(self.dataflow, module=module)
        aliasing = kept["aliasing"] = analyze_aliasing(dataflow)
        kept["timeless"] = self.timeless.with_buffers(dataflow, aliasing)
        if "live_ranges" in self.__dict__:
            kept["live_ranges"] = donate_live_ranges(
                self.live_ranges, self.aliasing, dataflow, aliasing, self.schedule, self.options
            )
        return again

    def resized(self, shapes: Mapping[Shape, Shape]) -> Stages:
        """The stages of the same program with arrays of other extents, by the shapes they have.

        Everything is kept but bytes and the assignment. The module stays as it is, so such a plan
        cannot be written. Raises `EditError` where more than bytes would change.
        """
        if problem := self.why_not_resized(shapes):
            raise EditError(f"the program must be planned again at this size: {problem}")
        again = replace(self, shapes=shapes, before=None, earlier=None)
        self._hand_on(again, _SIZELESS)
        again.__dict__["timeless"] = self.timeless.resized(shapes)
        return again

    def why_not_resized(self, shapes: Mapping[Shape, Shape]) -> str:
        """Why resizing needs a new plan: the same arrays must stay alike; empty if they do."""
        options = self.options
        if self.preset is not NO_PRESET:
            return "values were placed before, for the sizes they had"
        if rules_of(options.machine).counts_elements:
            return "the rules of its machine for writing over operands count elements"
        if options.sorts_computations_by_content and self.order_lists is not in_text_order:
            return "its lists are ordered by the text of the program"
        if not all(map(_differ_in_extents, shapes, shapes.values())):
            return "arrays would differ in more than extents"
        if len({shapes.get(array, array) for array in self.arrays}) != len(self.arrays):
            return "arrays would be alike that are not"
        return ""

    def check_written(self) -> None:
        """Raises `EditError` for a resized plan: its module, which is printed, says otherwise."""
        if self.shapes:
            raise EditError("a resized plan cannot be written: plan its module at this size")

    def _hand_on(self, other: Stages, names: tuple[str, ...]) -> None:
        for name in names:
            other.__dict__[name] = getattr(self, name)

    @cached_property
    def call_graph(self) -> CallGraph:
        """The calls between computations; bodies opened to find them are verified."""
        graph = CallGraph(self.module)
        verified = set(self.module.outer_computations)
        verify_computations(
            computation
            for computation in self.module.computations
            if computation not in verified and not graph.is_fused(computation)
        )
        if (call := graph.find_call_in_both()) is not None:
            raise call.error("what it calls runs both in the flow of the program and in a fusion")
        if graph.is_embedded(entry := self.module.entry):
            raise entry.root.error(
                f"`{entry.name}` is the entry, and runs inside an operation, too"
            )
        return graph

    @cached_property
    def order(self) -> ListOrder:
        """The order of XLA's lists, which the text does not show."""
        return self.order_lists(self.call_graph, self.options)

    @cached_property
    def dataflow(self) -> Dataflow:
        return analyze_dataflow(
            self.module,
            self.call_graph,
            self.order,
            updates_in_place=self.options.async_updates_in_place,
            marks_calls=self.options.forwards_call_markers,
        )

    @cached_property
    def aliasing(self) -> Aliasing:
        """The buffers: values that must lie together."""
        return analyze_aliasing(self.dataflow)

    @cached_property
    def live_ranges(self) -> LiveRanges:
        if self.before is not None:
            from hlomem.analysis.moved_ranges import move_live_ranges  # noqa: PLC0415 - few need it

            return move_live_ranges(
                self.before,
                self.dependents,
                self.dataflow,
                self.aliasing,
                self.schedule,
                self.options,
            )
        return analyze_live_ranges(self.dataflow, self.aliasing, self.schedule, self.options)

    @cached_property
    def colors(self) -> ColorOf:
        """The memory space of each value."""
        return color_values(self.aliasing, self.call_graph, self.options.machine)

    @cached_property
    def assignment(self) -> BufferAssignment:
        """The allocations, and the offset of every value in them."""
        return assign_buffers(
            self.timeless, self.live_ranges, self.pack, self.preset, self._find_known()
        )

    def _find_known(self) -> Known | None:
        """The decisions of an earlier plan, if it is of nearly the same order."""
        if self.earlier is None:
            return None
        from hlomem.analysis.moved_ranges import find_changed_buffers  # noqa: PLC0415 - few need it

        changed = find_changed_buffers(
            self.earlier.live_ranges, self.live_ranges, self.dependents, self.aliasing
        )
        return None if changed is None else Known(self.earlier.waiting, changed)

    @cached_property
    def _as_earlier(self) -> Earlier | None:
        waiting = self.assignment.waiting
        return None if waiting is None else Earlier(self.live_ranges, frozenset(waiting))

    @cached_property
    def timeless(self) -> Timeless:
        """The part of the assignment's input that no order changes."""
        return state_timeless(self.dataflow, self.aliasing, self.colors, self.options, self.shapes)

    @cached_property
    def dependents(self) -> Dependents:
        from hlomem.analysis.moved_ranges import find_dependents  # noqa: PLC0415 - few need it

        return find_dependents(self.dataflow, self.aliasing)

    @cached_property
    def arrays(self) -> frozenset[Shape]:
        """The shapes of all arrays outside of fusions, as the module says."""
        shapes = {id(i.shape): i.shape for i in self.module.iter_outer_instructions()}
        return frozenset(
            part for shape in shapes.values() for part in shape.parts.shapes if not part.is_tuple
        )

    @property
    def peak(self) -> PeakMoment | None:
        """The moment at which most bytes are alive, as XLA counts; None where a size is unknown."""
        return find_peak(self.live_ranges, self.shapes)


def _differ_in_extents(one: Shape, other: Shape) -> bool:
    """Whether two shapes are one, or arrays that are alike but for the sizes of dimensions."""
    if one == other:
        return True
    if one.is_buffer and other.is_buffer:
        one, other = one.elements[0], other.elements[0]
    kinds = [(side.element_type, side.dynamic, side.layout, side.rank) for side in (one, other)]
    is_split = one.layout is not None and bool(one.layout.split_configs)
    return one.is_array and kinds[0] == kinds[1] and not is_split


def in_text_order(call_graph: CallGraph, _options: Options) -> ListOrder:
    """The text's order of lists: the same offsets as XLA's, other ids, and less work."""
    return text_order(call_graph)


def start_stages(
    module: HloModule,
    options: Options | None = None,
    schedule: Schedule | None = None,
    pack: Pack | None = None,
    preset: Preset = NO_PRESET,
    order_lists: OrderLists = infer_order,
) -> Stages:
    """The stages of a plan, none computed yet; `schedule` is for a text that carries none."""
    verify_module(module)
    schedule = schedule or schedule_of(module) or _refuse_unscheduled(module)
    return Stages(module, schedule, options or Options(), pack, preset, order_lists)


def run_stages(
    module: HloModule,
    options: Options | None = None,
    schedule: Schedule | None = None,
    pack: Pack | None = None,
    preset: Preset = NO_PRESET,
    after_stage: Callable[[str], None] = lambda _: None,
    order_lists: OrderLists = infer_order,
) -> Stages:
    """Assign buffers to a module as XLA does; `after_stage` is as for `Stages.compute`."""
    stages = start_stages(module, options, schedule, pack, preset, order_lists)
    stages.compute(after_stage)
    return stages


def _refuse_unscheduled(module: HloModule) -> Schedule:
    problem = "the module has no schedule, so live ranges cannot be computed"
    hint = "take the order from a dump, given as the schedule"
    raise UnsupportedError(module.source, module.source.first_line, problem, hint)
