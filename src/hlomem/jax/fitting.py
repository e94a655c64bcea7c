"""`hlomem.jax.fit`: how large a setting may be made before the program no longer fits.

    hlomem.jax.fit("train:make_step", target="tpu-v5e:2x2", over="batch",
                   rows={"remat": ["none", "full"]})

Each size is planned by XLA itself, in a child; plans of the same compiler are kept in a folder.
"""

from __future__ import annotations

import inspect
from collections import Counter
from functools import partial
from hashlib import sha256
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hlomem.api.fit_search import MAX_PLANS, Planned, next_value, straddle
from hlomem.api.scale import scale
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import CommandError, HlomemError
from hlomem.base.json_bytes import decode_json
from hlomem.base.source import visible
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import CompileError
from hlomem.jax.known_plans import KnownPlans, default_cache
from hlomem.jax.target_kinds import parse_target
from hlomem.machines.capacity import Capacity, parse_capacity
from hlomem.report.data.fit import FitPlan, FitReport, FitRow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.api.scale import ScaledProgram
    from hlomem.jax.compile.parent import PlannedProgram
    from hlomem.jax.target_kinds import Target


def _keep(file: Path, known: Struct) -> None:
    write_files(file.parent, {file.name: [msgspec.json.encode(known)]}, force=True)


class KnownForecast(Struct, frozen=True):
    """A forecast that is kept."""

    largest: int


class _Point(NamedTuple):
    value: int
    fingerprint: str
    size: int


class Forecasts:
    """The programs of one search; hlomem's plans of them predict, where they match XLA's."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._programs: dict[str, PlannedProgram] = {}
        self._points: list[_Point] = []
        self._grown: dict[tuple[_Point, _Point], ScaledProgram | None] = {}

    def begin(self) -> None:
        """Forget the programs of another row."""
        self._programs.clear()
        self._points.clear()
        self._grown.clear()

    def add(self, fingerprint: str, program: PlannedProgram) -> None:
        """Note a program that XLA has planned just now."""
        self._programs[fingerprint] = program

    def note(self, value: int, fingerprint: str, size: int) -> None:
        """Note the bytes of a plan, made now or known from before."""
        self._points.append(_Point(value, fingerprint, size))

    def predict(self, limit: int, step: int) -> int | None:
        """The largest value by the nearest programs that tell it; None where it is unknown."""
        nearest = sorted(self._points, key=lambda point: abs(point.size - limit))
        pairs = sorted(combinations(range(len(nearest)), 2), key=sum)
        told = (self._by_pair(nearest[i], nearest[j], nearest[0], limit, step) for i, j in pairs)
        return next((largest for largest in told if largest is not None), None)

    def _by_pair(
        self, one: _Point, other: _Point, third: _Point, limit: int, step: int
    ) -> int | None:
        """The same by two programs, which have to tell the bytes of a third; kept, once found."""
        one, other = sorted((one, other))
        words = f"{one} {other} {third} {limit} {step}"
        file = self._cache / f"{sha256(words.encode()).hexdigest()}.forecast.json"
        try:
            return decode_json(file.read_bytes(), KnownForecast).largest
        except (OSError, msgspec.MsgspecError):
            largest = self._predict(one, other, third, limit, step)
        if largest is not None:
            _keep(file, KnownForecast(largest))
        return largest

    def _predict(
        self, one: _Point, other: _Point, third: _Point, limit: int, step: int
    ) -> int | None:
        if (one, other) not in self._grown:
            self._grown[one, other] = self._grow(one, other)
        grown = self._grown[one, other]
        if grown is None:
            return None
        try:
            if any(grown.bytes_at(point.value) != point.size for point in (one, other, third)):
                return None
            return grown.largest(limit, step).largest or None
        except HlomemError:
            return None

    def _grow(self, one: _Point, other: _Point) -> ScaledProgram | None:
        """The program that two values have; None where it is not known, or not the same."""
        first, second = (self._programs.get(point.fingerprint) for point in (one, other))
        if first is None or second is None:
            return None
        sizes = one.value, other.value
        try:
            return scale(first.dump, second.dump, sizes=sizes, backend=first.target.machine)
        except HlomemError:
            return None


def fit(
    factory: str | Callable[..., Any],
    *,
    target: str,
    over: str = "batch",
    rows: Mapping[str, Sequence[Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
    step: int = 1,
    start: int = 0,
    capacity: str | int | None = None,
    cache: str | Path | None = None,
    timeout: float | None = None,
    imports: Sequence[str] = (),
    on_progress: Callable[[int, int, str], None] = lambda _row, _rows, _words: None,
) -> FitReport:
    """The largest value of the setting `over` that fits a target, for every combination of `rows`.

    `factory` is one of `hlomem compile`, by name or itself, if a child can import it. Values are
    multiples of `step`, from `start` on. `capacity` is what the device has, by default what the
    target's has. `cache` is where plans are kept, by default the user's cache folder. A row takes
    six plans at most; one that needs more says that its largest value is not proven.
    """
    where = parse_target(target)
    limit = _limit(where, capacity)
    if step < 1 or start < 0:
        raise CommandError("`step` is 1 or more, `start` is not negative")
    choices, given = dict(rows or {}), dict(settings or {})
    for name, count in Counter([over, *given, *choices]).items():
        if count > 1:
            raise CommandError(f"`{visible(name)}` is given twice")
    job = Job(
        factory=spec_of(factory),
        target=where.name,
        settings=given,
        imports=tuple(imports),
        has_fingerprint=True,
    )
    planner = _Planner(job, over, limit, Path(cache) if cache else default_cache(), timeout)
    values_of = list(product(*choices.values()))
    found = []
    for number, values in enumerate(values_of):
        report = partial(on_progress, number, len(values_of))
        found.append(_search(planner, dict(zip(choices, values, strict=True)), step, start, report))
    return FitReport(
        factory=job.factory,
        target=where.name,
        over=over,
        step=step,
        capacity=limit,
        settings=job.settings,
        rows=tuple(_with_work(found)),
        notes=_notes(found, limit),
    )


def spec_of(factory: str | Callable[..., Any]) -> str:
    """The name by which a child can import a factory."""
    if isinstance(factory, str):
        return factory
    name = getattr(factory, "__qualname__", "")
    module = getattr(factory, "__module__", "")
    if not name or "<" in name:
        raise CommandError("a factory is imported by another process: give a function of a module")
    if module != "__main__":
        return f"{module}:{name}"
    try:
        return f"{Path(inspect.getfile(factory)).resolve(strict=True)}:{name}"
    except (OSError, TypeError) as error:
        problem = f"another process cannot import `{visible(name)}` of a notebook or of stdin"
        raise CommandError(f"{problem}: put it into a file") from error


def _limit(target: Target, capacity: str | int | None) -> Capacity:
    own = target.capacity
    if capacity is None:
        if own is None:
            raise CommandError(f"what fits {target.name} depends on its memory: give a capacity")
        return own
    given = Capacity(size=capacity) if isinstance(capacity, int) else parse_capacity(capacity)
    if own is not None and not own.is_nominal and given.size > own.size:
        problem = f"a capacity of {given.size} bytes is more than the {own.size} of {target.name}"
        raise CommandError(f"{problem}, which its compiler plans for")
    return given


class _Planner:
    """Plans of one factory, asked for by value."""

    def __init__(
        self, job: Job, over: str, limit: Capacity, cache: Path, timeout: float | None
    ) -> None:
        self._job = job
        self._over = over
        self._known = KnownPlans(cache)
        self._timeout = timeout
        self.limit = limit
        self.forecasts = Forecasts(cache)

    def plan(self, own: dict[str, Any], value: int, on_progress: Callable[[], None]) -> FitPlan:
        """XLA's plan for a value of the setting, made now or known from before."""
        job = replace(self._job, settings={**self._job.settings, **own, self._over: value})
        known = self._known.plan(job, self._timeout, on_progress)
        facts, plan = known.facts, known.plan
        if known.program is not None:
            self.forecasts.add(facts.fingerprint, known.program)
        self.forecasts.note(value, facts.fingerprint, plan.size)
        return FitPlan(
            value=value,
            size=plan.size,
            fits=not plan.is_refused and plan.size <= self.limit.size,
            cpu_seconds=round(known.cpu_seconds, 2),
            flops=facts.flops,
        )


def _search(
    planner: _Planner,
    own: dict[str, Any],
    step: int,
    start: int,
    on_progress: Callable[[str], None],
) -> FitRow:
    plans: list[FitPlan] = []
    planner.forecasts.begin()
    while len(plans) < MAX_PLANS:
        seen = {plan.value: Planned(plan.size, plan.fits) for plan in plans}
        predict = partial(planner.forecasts.predict, planner.limit.size, step)
        value = next_value(seen, planner.limit.size, step, start, predict)
        if value is None:
            break
        words = ", ".join(f"{name}={chosen}" for name, chosen in own.items())
        words = f"{words}{': ' if words else ''}plan {len(plans) + 1} at {value}"
        try:
            plans.append(planner.plan(own, value, partial(on_progress, words)))
        except CompileError as error:
            hint = f"it was tried at {value}; --start and --step choose the values, as in"
            raise CompileError(f"{error}\n  {hint} --start 50 --step 50") from error
    edge = straddle({plan.value: Planned(plan.size, plan.fits) for plan in plans})
    base, per_item = _line(plans)
    return FitRow(
        settings=own,
        plans=tuple(plans),
        largest=edge.largest,
        smallest_refused=edge.refused,
        is_proven=edge.is_closed(step),
        base=base,
        per_item=per_item,
        work=None,
    )


def _line(plans: Sequence[FitPlan]) -> tuple[int, float]:
    """Bytes at 0 and bytes of one more, by the two smallest values."""
    if len(plans) < 2:
        return 0, plans[0].size / plans[0].value
    left, right = sorted(plans, key=lambda plan: plan.value)[:2]
    slope = (right.size - left.size) / (right.value - left.value)
    return round(left.size - slope * left.value), slope


def _with_work(rows: Sequence[FitRow]) -> list[FitRow]:
    """Rows with their matrix products, in relation to the row with the fewest."""
    shared = set.intersection(*({plan.value for plan in row.plans} for row in rows))
    for value in sorted(shared):
        counts = [plan.flops for row in rows for plan in row.plans if plan.value == value]
        known = [count for count in counts if count]
        if len(known) == len(rows):
            least = min(known)
            return [
                replace(row, work=count / least) for row, count in zip(rows, known, strict=True)
            ]
    return list(rows)


def _notes(rows: Sequence[FitRow], limit: Capacity) -> tuple[str, ...]:
    notes = []
    if limit.is_nominal:
        more = f"; {limit.note}" if limit.note else ""
        notes.append(f"the memory of {limit.name} is nominal: programs get less{more}")
    if open_rows := [row for row in rows if not row.is_proven]:
        notes.append(
            f"{len(open_rows)} of {len(rows)} rows are not proven: after {MAX_PLANS} plans values"
            " between the largest that fits and the next refused are left"
        )
    return tuple(notes)
