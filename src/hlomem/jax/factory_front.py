"""`hlomem.jax.front`: memory against operations of a factory's program; and its better order.

    hlomem.jax.front("train:make_step", target="cpu", fit="48 MiB")

Where hlomem's plans are not the compiler's, the compiler plans every point of the front itself, and
on a TPU several orders, in a child.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from hlomem.api.front import find_points, with_front
from hlomem.api.improve import BetterOrder, build_report, with_cheap
from hlomem.assign.footprint import footprint
from hlomem.base.errors import HlomemError
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.placeholder import planned_bytes, temporaries_of
from hlomem.jax.compile.scheduled_module import PLACES, Place, Places, capture, capture_into
from hlomem.jax.fitting import spec_of
from hlomem.jax.pass_.compiler import compiler_of
from hlomem.jax.pass_.register import compiler_options
from hlomem.machines.budget import parse_budget
from hlomem.opt.candidate import Program, start_text
from hlomem.opt.goal import Effort, Rules
from hlomem.opt.orders.cost import model_time, program_flops
from hlomem.opt.orders.planned_orders import other_bytes
from hlomem.opt.search import Compiler, find_order
from hlomem.opt.trials import try_orders
from hlomem.proto.module import read_module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.jax.compile.parent import PlannedProgram
    from hlomem.report.data.front import FrontPoint
    from hlomem.report.data.improvement import ImprovementReport


MAX_SECONDS = 1800.0
"""How long one compile may take."""


class ImprovedFactory(NamedTuple):
    """A factory's program in a better order, and all that is known of it."""

    found: BetterOrder
    planned: PlannedProgram
    """In XLA's own order."""
    compiler: Compiler

    @property
    def before(self) -> int:
        """Bytes of temporaries in XLA's own order, as its compiler plans them."""
        return temporaries_of(self.planned.dump)


class FactoryFront(NamedTuple):
    """The points of a factory's program, and words on what was tried."""

    points: tuple[FrontPoint, ...]
    notes: tuple[str, ...]


def front(
    factory: str | Callable[..., Any],
    *,
    target: str = "cpu",
    settings: Mapping[str, Any] | None = None,
    fit: float | str | None = None,
    budgets: Sequence[float] = (),
    effort: Effort = "default",
    timeout: float = MAX_SECONDS,
) -> ImprovementReport:
    """Memory against operations of a factory's program, with the policies of jax.checkpoint.

    `factory` is one of `hlomem compile`, by name or itself, if a child can import it. `fit` is the
    memory that all allocations may take: bytes, `"200 MiB"`, a chip, or 0.5 for half of the
    temporaries. `budgets` are more such shares to find programs for. In the report,
    `.front` has the points, `.advice` what to type. `timeout` is what each compile may take.
    """
    job = Job(factory=spec_of(factory), target=target, settings=dict(settings or {}))
    improved = improve_factory(job, Rules(effort), timeout)
    others = other_bytes(improved.found.stages)
    limit = parse_budget(fit).limit_of(others, improved.before)
    found = find_factory_front(job, improved, limit, timeout, shares=budgets)
    return with_front(improved.found.report, found.points, limit, found.notes)


def improve_factory(
    job: Job, rules: Rules, timeout: float, on_progress: Callable[[str], None] = lambda _: None
) -> ImprovedFactory:
    """Look for an order of a factory's program that needs less memory on the job's target."""
    planned, proto = capture(job, timeout, on_progress)
    target = planned.target
    stages = start_text(
        read_module(proto), compiler_options(target.family, target.machine.chip_name)
    )
    on_progress("searches")
    ordered = find_order(Program(stages, rules, proto))
    name, changed = stages.module.name, target.machine.changed_after_hook
    plan = partial(planned_bytes, target.name, target.family)
    compiler = compiler_of(None if changed == "nothing" else plan)
    if changed != "memory":
        return ImprovedFactory(with_cheap(name, ordered), planned, compiler)
    on_progress("tries orders of")
    tried = try_orders(ordered, compiler, before=temporaries_of(planned.dump))
    note = f"sizes are those of libtpu's own plans; {tried.tried} orders were tried"
    report = replace(
        build_report(name, ordered),
        before=tried.before,
        after=tried.after,
        bound=None,
        verdict="open",
        method="as given" if tried.best is None else tried.best.method,
        computations=(),
        notes=(note, *tried.rejections),
    )
    best = tried.best or ordered.given.start()
    return ImprovedFactory(BetterOrder(report, best), planned, compiler)


def find_factory_front(
    job: Job,
    improved: ImprovedFactory,
    limit: int | None,
    timeout: float,
    on_progress: Callable[[str], None] = lambda _: None,
    *,
    shares: Sequence[float] = (),
) -> FactoryFront:
    """All points: XLA's own program, those hlomem finds, and the policies of jax.checkpoint."""
    compiler, ask = improved.compiler, improved.compiler.plan

    def plan(proto: bytes) -> int:
        assert ask is not None
        on_progress("plans points of")
        return ask(proto)

    on_progress("rematerializes values of")
    asked = compiler if ask is None else compiler._replace(plan=plan)
    points = find_points(improved.found, limit, asked, improved.before, shares=shares)
    given = next(point for point in points if point.kind == "given")
    tried = try_policies(job, given, timeout, on_progress)
    name = improved.planned.target.name
    planner = () if ask is None else (f"every program was planned by the compiler for {name}",)
    return FactoryFront((*points, *tried.points), (*planner, *tried.notes))


POLICIES = (
    "everything_saveable",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "nothing_saveable",
)
_IN_WORDS: Mapping[Place, str] = {
    "checkpoint": "what the factory wraps with `checkpoint`",
    "gradient": "what jax.grad, jax.value_and_grad and jax.vjp differentiate",
    "scan": "the bodies of jax.lax.scan",
}
_IN_NAMES: Mapping[Place, str] = {"checkpoint": "", "gradient": ", whole", "scan": ", scan"}
_WRAPPED: Mapping[Place, str] = {
    "checkpoint": "layer = jax.checkpoint(layer, policy=policy)  # what `checkpoint` wraps",
    "gradient": "loss = jax.checkpoint(loss, policy=policy)  # what is differentiated",
    "scan": "body = jax.checkpoint(body, policy=policy, prevent_cse=False)  # of the scan",
}
_NOTHING_SEEN = (
    "nothing was seen to be differentiated; a factory's parameter `checkpoint` can say what to wrap"
)


class TriedPolicies(NamedTuple):
    """The policies of which there is a plan, and words on the others."""

    points: tuple[FrontPoint, ...]
    notes: tuple[str, ...]


def try_policies(
    job: Job, given: FrontPoint, timeout: float, on_progress: Callable[[str], None] = lambda _: None
) -> TriedPolicies:
    """Plan a factory's program under each policy, at each place it can be put around.

    A factory with a parameter `checkpoint` says itself what is wrapped; else the function that is
    differentiated is, and then the bodies of scans.
    """
    search = _Search(job, given, timeout, on_progress)
    first = search.try_all("gradient")
    if any(places.wrapped == "gradient" and places.gradients * places.scans for places in first):
        search.try_all("scan")
    return TriedPolicies(tuple(search.points), tuple(dict.fromkeys(search.notes)))


class _Search:
    def __init__(
        self, job: Job, given: FrontPoint, timeout: float, on_progress: Callable[[str], None]
    ) -> None:
        self._job = job
        self._given = given
        self._timeout = timeout
        self._on_progress = on_progress
        self.points: list[FrontPoint] = []
        self.notes: list[str] = []

    def try_all(self, place: Place) -> list[Places]:
        """Try every policy at a place; what was seen of the program's places."""
        seen = []
        for policy in POLICIES:
            self._on_progress(f"tries {policy} on")
            try:
                point, places = self._try(policy, place)
            except HlomemError as error:
                problem = str(error).partition("\n")[0]
                self.notes.append(f"{_legend(place)}: {problem}")
                continue
            seen.append(places)
            if places.wrapped == "gradient" and not places.gradients:
                self.notes.append(f"jax.checkpoint was not tried: {_NOTHING_SEEN}")
                break
            self.points.append(point)
            self.notes.append(f"{_legend(places.wrapped)}, as XLA plans it")
        return seen

    def _try(self, policy: str, place: Place) -> tuple[FrontPoint, Places]:
        with TemporaryDirectory(prefix="hlomem-") as folder:
            file = Path(folder) / "module.pb"
            checkpoint = {"policy": policy, "place": place}
            planned, proto = capture_into(
                file, self._job, self._timeout, lambda _: None, checkpoint
            )
            found = Path(f"{file}{PLACES}").read_bytes()
        places = msgspec.json.decode(found, type=Places)
        options = compiler_options(planned.target.family, planned.target.machine.chip_name)
        stages = start_text(read_module(proto), options)
        given = self._given
        assert planned.dump.assignment is not None
        point = replace(
            given,
            name=f"{policy}{_IN_NAMES[places.wrapped]}",
            kind="policy",
            temporaries=temporaries_of(planned.dump),
            total=footprint(planned.dump.assignment.allocations),
            flops=program_flops(stages) - given.program_flops,
            time=model_time(stages, {}).before - given.program_time,
            code=f"policy = jax.checkpoint_policies.{policy}\n{_WRAPPED[places.wrapped]}",
        )
        return point, places


def _legend(place: Place) -> str:
    return f"`…_saveable{_IN_NAMES[place]}`: jax.checkpoint around {_IN_WORDS[place]}"
