"""`hlomem.plan`: the memory plan of a program, stage by stage and as the dump XLA would write."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem import hlo
from hlomem.analysis.live_range import split_sequence
from hlomem.assign.allocation import OffsetSize
from hlomem.assign.preset import NO_PRESET, Preset
from hlomem.base.errors import CommandError, InputError, ParseError
from hlomem.base.gc_pause import collector_off
from hlomem.base.quantities import ByteCount, Color, Offset
from hlomem.base.source import Source, Span, visible
from hlomem.dump.eras import Era, Features, ReportShape, era_of, recognise, releases_of
from hlomem.dump.file_names import FILE_NAMES, Kind
from hlomem.history.order import infer_order
from hlomem.hlo.schedule import Schedule, SequenceProblem, check_sequence, schedule_from_names
from hlomem.hlo.shape import ShapeIndex
from hlomem.machines.options import Options, notes_on_release, options_for
from hlomem.machines.registry import find_machine, given_machine, machines_of
from hlomem.machines.releases import JAXLIB, LIBTPU, NEWEST_LETTER, Release, find_release
from hlomem.pipeline import OrderLists, Stages, in_text_order, run_stages
from hlomem.view.guess_machine import MachineCandidates, guess_for_dump, guess_for_module
from hlomem.write.build import build_contents
from hlomem.write.plan_text import PlanText

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.assign.simulator import Pack
    from hlomem.dump.dump import Dump
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.machine import Machine

_FIRST_CPU_REPORT = Release(JAXLIB, (0, 4, 35))


class Plan(Struct, frozen=True, eq=False, dict=True):
    """A memory plan: its stages, and the files XLA would write."""

    stages: Stages
    name: str
    """The stem of its files."""
    era: Era
    """The version of their format."""
    files: dict[str, Kind]
    """XLA's files, by name."""
    seconds: dict[str, float]
    """CPU time by step."""
    notes: tuple[str, ...] = ()
    """Assumptions where the text is silent."""

    @cached_property
    def dump(self) -> Dump:
        """The dump XLA would write, as records."""
        from hlomem.dump.dump import Dump  # noqa: PLC0415 - a text needs no records
        from hlomem.dump.parts import Part, Wrapping  # noqa: PLC0415

        with collector_off():
            contents = build_contents(self.stages, self.era.features)
        parts = [
            Part(name, kind, contents.of_file(kind), self.era.features, Wrapping())
            for name, kind in self.files.items()
        ]
        return Dump(self.name, tuple(parts), (self.era,))

    def text(self, file: str) -> str:
        """The text of one of its files."""
        with collector_off():
            return "".join(self.pieces(file))

    def pieces(self, file: str) -> Iterator[str]:
        """The text of one of its files in pieces, since it may be large."""
        return self._text.pieces(self.files[file])

    @cached_property
    def _text(self) -> PlanText:
        return PlanText(self.stages, self.era)

    def to_proto(self) -> bytes:
        """An HloProto of the program and this plan."""
        from hlomem.proto.write import encode_plan  # noqa: PLC0415 - few ask for it

        return encode_plan(self.stages)

    def __str__(self) -> str:
        return "".join(map(self.text, self.files))

    def _repr_html_(self) -> str:
        """The report, for notebooks."""
        from hlomem.report.page.notebook import format_frame  # noqa: PLC0415 - few ask for it

        return format_frame(self.dump, self.stages.module, is_planned=True)


def plan(
    program: str | HloModule,
    *,
    backend: str | Machine = "",
    chip: str = "",
    era: str = "",
    like: Dump | None = None,
    schedule: Dump | None = None,
    preset: Dump | None = None,
    pack: Pack | None = None,
    order: str = "xla",
    name: str = "module",
) -> Plan:
    """The plan of XLA's buffer assignment for a program.

    `program` is HLO text or a module. `backend` and `chip` (`v5e`, `h200`), or a machine as the
    backend, are inferred from it; an error asks for them if candidates would plan it differently.
    `era` is a release (`jaxlib-0.7.2`) or an era's letter, by default the newest; `like` takes it
    from a dump, choosing the release that reproduces the dump's allocations. `schedule` is a dump
    with the instruction order, for text without one. `preset` is a dump with the offsets in a TPU's
    fast memory, which are assigned before buffer assignment and not part of the text. `pack`
    replaces the heap algorithm. `order` is that of XLA's lists: `xla` infers it, so that ids are
    XLA's; `text` is faster and gives the same offsets. `name` is the stem of the plan's files.
    `notes` of the plan list assumptions.
    """
    order_lists = find_order(order)
    watch = Stopwatch()
    with collector_off():
        module = hlo.parse(program) if isinstance(program, str) else program
        if schedule is not None:
            from hlomem.rebuild.names_from_dump import expand  # noqa: PLC0415 - few need it

            module = expand(module, schedule)
        schedule_given = None if schedule is None else _schedule_of(module, schedule)
    watch.lap("parse")
    dumps = [dump for dump in (schedule, preset, like) if dump is not None]
    guess = find_machines(module, backend, chip, dumps)
    reason = guess.reason
    if len(guess.machines) > 1:
        names = ", ".join(machine.name for machine in guess.machines)
        reason = "; ".join(filter(None, (reason, f"{names} plan it alike")))
    planner = _Planner(
        module, era, like, schedule_given, preset, pack, order_lists, name, watch, reason
    )
    made = planner.plan_on(guess.machines[0])
    for other in guess.machines[1:]:
        if _outline(planner.plan_on(other)) != _outline(made):
            raise _undecided(module, guess)
    return made


def _outline(made: Plan) -> list[object]:
    """Every allocation with its offsets: plans with the same outline are equal."""
    return [
        (
            allocation.size,
            allocation.color,
            {(value.id, value.instruction.name): at for value, at in allocation.slices.items()},
        )
        for allocation in made.stages.assignment.allocations
    ]


def find_machines(
    module: HloModule, backend: str | Machine, chip: str, dumps: Sequence[Dump] = ()
) -> MachineCandidates:
    """The machines a module may be for: given, or inferred from its text or dumps."""
    if not isinstance(backend, str) or chip or (backend and len(machines_of(backend)) == 1):
        given = given_machine(backend, chip)
        assert given is not None
        return MachineCandidates((given,), "")
    guess = guess_for_module(module, module.source_name, backend)
    if len(guess.machines) == 1:
        return guess
    for dump in dumps:
        if dump.assignment is not None:
            from hlomem.view.joined import join_dump  # noqa: PLC0415 - few need it

            shown = guess_for_dump(join_dump(dump))
            both = tuple(machine for machine in guess.machines if machine in shown.machines)
            if both:
                guess = MachineCandidates(both, guess.reason or f"of its dump, {shown.reason}")
    if not guess.machines:
        find_machine(backend, chip)  # which says what is known
    return guess


def _undecided(module: HloModule, guess: MachineCandidates) -> CommandError:
    """The error for a module whose candidate machines plan it differently."""
    where = visible(module.source_name)
    platforms = list(dict.fromkeys(machine.platform for machine in guess.machines))
    if len(platforms) > 1:
        problem = f"{where}: the text does not tell for which machine it was compiled"
        known = ", ".join(platforms)
        ask = f"give one of {known} as the backend"
        return CommandError(f"{problem}, and they plan it differently: {ask}")
    chips = ", ".join(machine.chip_name for machine in guess.machines)
    problem = f"{where}: compiled for a {platforms[0].upper()}"
    problem += f" ({guess.reason})" if guess.reason else ""
    return CommandError(
        f"{problem}, which plans by its chip, and the text does not tell it:"
        f" give one of {chips} as the chip"
    )


class _Planner(Struct, frozen=True):
    module: HloModule
    era: str
    like: Dump | None
    schedule: Schedule | None
    preset: Dump | None
    pack: Pack | None
    order_lists: OrderLists
    name: str
    watch: Stopwatch
    reason: str
    """Why this machine; empty if it was given."""

    def plan_on(self, machine: Machine) -> Plan:
        """The plan of the requested release, or of the one that reproduces a dump."""
        releases = _releases(machine, self.era, self.like)
        written_as = self.like.era if self.like is not None else era_of(releases[0])
        plans: list[Plan] = []
        for release in releases:
            options = options_for(machine, release)
            if any(options.plans_like(made.stages.options) for made in plans):
                continue
            plans.append(self._plan_as(release, options, written_as))
            if self.like is None or _has_allocations_of(self.like, plans[-1].dump):
                return plans[-1]
        return plans[0]

    def _plan_as(self, release: Release, options: Options, written_as: Era) -> Plan:
        module, machine = self.module, options.machine
        notes = [f"planned for {machine.name}: {self.reason}"] if self.reason else []
        with collector_off():
            schedule = self.schedule
            if schedule is None and not module.is_scheduled:
                schedule = _new_schedule(module, options, notes)
            placed = NO_PRESET if self.preset is None else preset_of(module, self.preset, machine)
            stages = run_stages(
                module, options, schedule, self.pack, placed, self.watch.lap, self.order_lists
            )
        notes += [*notes_on_release(machine, release), *_notes_on_elements(module)]
        if self.preset is None:
            notes += _notes_on_preset(stages)
        else:
            _check_all_placed(stages, self.preset)
        files = files_of(self.name, written_as, release)
        return Plan(stages, self.name, written_as, files, self.watch.seconds, tuple(notes))


def find_order(name: str) -> OrderLists:
    """The function that orders a module's lists: `xla` or `text`."""
    found = _ORDERS.get(name)
    if found is None:
        raise CommandError(f"unknown order `{visible(name)}`; known are {', '.join(_ORDERS)}")
    return found


_ORDERS = {"xla": infer_order, "text": in_text_order}
ORDERS = tuple(_ORDERS)


class Stopwatch:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.process_time()

    def lap(self, name: str) -> None:
        now = time.process_time()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now


def _releases(machine: Machine, era: str, like: Dump | None) -> list[Release]:
    """The releases to plan as, newest first: one, or all that write a dump's format."""
    package = machine.package
    if like is None:
        return [find_release(era or NEWEST_LETTER, package)]
    if era:
        raise both_given()
    if like.era.letter == "?":
        raise unknown_era(like)
    return releases_of(like.era, package)


def _has_allocations_of(dump: Dump, planned: Dump) -> bool:
    from hlomem.dump.parts import Contents, format_part  # noqa: PLC0415 - few need it

    texts = [
        format_part("assignment", Contents(assignment=side.assignment), dump.era)
        for side in (dump, planned)
        if side.assignment is not None
    ]
    return texts[0] == texts[-1]


def both_given() -> CommandError:
    return CommandError("give either an era or a dump to write like, not both")


def unknown_era(dump: Dump) -> ParseError:
    """The error at the first file of a dump that no XLA writes, alone or with the others."""
    seen = Features()
    for part in dump.parts:
        seen = seen.merged_with(part.seen)
        if recognise(seen)[0].letter == "?":
            break
    source = Source(part.name, dump.part_text(part))
    problem = "its era is unknown: no XLA writes this file, or not together with the others"
    return ParseError(source, source.first_line, problem, "give an era")


def preset_of(module: HloModule, dump: Dump, machine: Machine) -> Preset:
    """The offsets of memory-space assignment: in a dump, those of one temporary allocation."""
    where = visible(dump.name)
    if dump.assignment is None:
        raise InputError(f"{where}: no allocations, so no preset offsets, in this dump")
    if machine.preset_color is None:
        raise CommandError(f"`{machine.name}` has no preset offsets: give no preset")
    allocations = [
        allocation
        for allocation in dump.assignment.allocations
        if allocation.color == machine.preset_color and allocation.is_preallocated_temp
    ]
    if not allocations:
        problem = f"no temporary allocation in memory space {machine.preset_color}"
        where = visible(dump.name)
        raise InputError(
            f"{where}: {problem}, which every dump of `{machine.name}` has: give its own"
        )
    shape_of = {
        instruction.name: instruction.shape for instruction in module.iter_outer_instructions()
    }
    for value in (value for allocation in allocations for value in allocation.values):
        whole = shape_of.get(value.name)
        part = None if whole is None else whole.optional_subshape(value.index or ())
        if part is None or part.text != value.shape:
            problem = f"it places `{visible(value.name)}` of shape {visible(value.shape)}"
            raise InputError(f"{where}: {problem}, which `{module.name}` does not have")
    return Preset(
        {Color(allocation.color): ByteCount(allocation.size) for allocation in allocations},
        {
            (value.name, ShapeIndex(value.index or ())): OffsetSize(
                Offset(value.offset), ByteCount(value.size)
            )
            for allocation in allocations
            for value in allocation.values
        },
    )


def _check_all_placed(stages: Stages, dump: Dump) -> None:
    color = stages.options.machine.preset_color
    for allocation in stages.assignment.allocations:
        names = [(value.instruction.name, value.index) for value in allocation.slices]
        if allocation.color == color and names and stages.preset.slice_of.keys().isdisjoint(names):
            problem = f"it does not place `{names[0][0]}` of memory space {color}"
            raise InputError(f"{visible(dump.name)}: {problem}, which `{stages.module.name}` has")


def _notes_on_preset(stages: Stages) -> list[str]:
    color = stages.options.machine.preset_color
    if all(
        allocation.color != color or not allocation.slices
        for allocation in stages.assignment.allocations
    ):
        return []
    problem = f"the text does not say where values lie in memory space {color}"
    return [f"{problem}: packed again (a dump given as preset has the offsets)"]


def _notes_on_elements(module: HloModule) -> list[str]:
    if not module.implies_elements:
        return []
    from hlomem.rebuild.names_from_dump import unnamed_elements  # noqa: PLC0415 - few need it

    count = len(unnamed_elements(module))
    if not count:
        return []
    problem = f"the text does not name its {count} get-tuple-elements"
    return [f"{problem}: names and slots are made up (a dump given as schedule has them)"]


def _new_schedule(module: HloModule, options: Options, notes: list[str]) -> Schedule | None:
    """The order of the backend's scheduler for a text without one; None if unknown."""
    from hlomem.opt.orders.xla_schedulers import choose_schedule  # noqa: PLC0415 - few need it

    chosen = choose_schedule(module, options)
    if chosen is None:
        return None
    problem = "the text has no schedule"
    notes.append(f"{problem}: in the order of XLA's {chosen.scheduler} scheduler")
    return chosen.schedule


def _schedule_of(module: HloModule, dump: Dump) -> Schedule:
    if dump.live_ranges is None:
        where = visible(dump.name)
        raise InputError(f"{where}: no live ranges, so no instruction sequence, in this dump")
    sequence = dump.live_ranges.sequence
    try:
        check_sequence(module, sequence)
    except SequenceProblem as problem:
        raise _at_step(
            dump, problem, f"its sequence does not match module `{module.name}`"
        ) from None
    return schedule_from_names(module, split_sequence(module, sequence))


def _at_step(dump: Dump, problem: SequenceProblem, hint: str) -> ParseError:
    """The error at a step of a dump's sequence, in the dump's text."""
    part = next(part for part in dump.parts if part.contents.live_ranges is not None)
    text = dump.part_text(part)
    start = text.find("\n", text.index("InstructionSequence:"))
    for _ in range(problem.step):
        start = text.find("\n", start + 1)
    span = Span(start + 1, text.find("\n", start + 1))
    return ParseError(Source(part.name, text), span, str(problem), hint)


def files_of(name: str, era: Era, release: Release) -> dict[str, Kind]:
    """The files this release writes, with stem `name`."""
    kinds: list[Kind] = ["combined"]
    if era.features.split:
        kinds = ["assignment", "values", "live-range"]
    writes_report = release.package == LIBTPU or release >= _FIRST_CPU_REPORT
    if writes_report and era.features.report != frozenset[ReportShape]({"none"}):
        kinds.append("report")
    return {name + FILE_NAMES[kind].suffix: kind for kind in kinds}
