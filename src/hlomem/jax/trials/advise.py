"""`hlomem.jax.advise`: changes of a program that were made and compiled, with what they saved.

    hlomem.jax.advise("train:make_step", target="tpu-v5e:2x2", fit="v5e")
    hlomem.jax.advise(train_step, params, batch, target="tpu-v5e:2x2")

In: a factory, or a function with its arguments. Out: an `AdviceReport`. The program is compiled as
it is, then with every change of its source that may help, each in a child process and only until
the compiler has planned it. No file of the user is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hlomem.api.advise import advise_on
from hlomem.base.errors import CommandError
from hlomem.base.sizes import format_bytes
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import plan_in_child
from hlomem.jax.fitting import spec_of
from hlomem.jax.kernels.limits import advise_limit
from hlomem.jax.known_plans import KnownPlans, default_cache
from hlomem.jax.target_kinds import parse_target
from hlomem.jax.trials.called_function import FACTORY, kept_arguments
from hlomem.jax.trials.changes import propose
from hlomem.jax.trials.cheapest import find_cheapest, find_together
from hlomem.jax.trials.trying import Trials, Tried
from hlomem.machines.capacity import Capacity, parse_capacity
from hlomem.report.data.advice import Advice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.report.data.advice import AdviceReport
    from hlomem.report.data.memory import MemoryView

MAX_SECONDS = 1800.0
"""How long one compile may take."""
_WORTH = 0.01
"""Smallest fraction of the memory that a change must save to be advised."""


def advise(
    subject: str | Callable[..., Any],
    /,
    *arguments: Any,
    target: str | None = None,
    fit: int | str | None = None,
    settings: Mapping[str, Any] | None = None,
    imports: Sequence[str] = (),
    jit: Mapping[str, Any] | None = None,
    cache: str | Path | None = None,
    timeout: float | None = MAX_SECONDS,
    on_progress: Callable[[str], None] = lambda _: None,
    on_plan: Callable[[MemoryView], None] = lambda _: None,
    **keywords: Any,
) -> AdviceReport:
    """Changes that save memory on a target, each compiled, with the bytes it saved.

    `subject` is a factory of `hlomem compile` by name, or a function of a module, jitted or not,
    followed by its arguments, arrays or `jax.ShapeDtypeStruct`s. `fit` is a memory, bytes,
    `"200 MiB"` or a chip: the cheapest set of changes that fits it is looked for. `cache` is where
    plans are kept, `on_plan` gets the plan of the program as it is.
    """
    limit = _limit(fit)
    aim = parse_target(target or _target_of(limit)).name
    folder = Path(cache) if cache else default_cache()
    if isinstance(subject, str):
        if arguments or keywords or jit:
            raise CommandError("a factory has its own arguments: give the function instead")
        job = Job(
            factory=subject, target=aim, settings=dict(settings or {}), imports=tuple(imports)
        )
        return advise_job(job, limit, folder, timeout, on_progress, on_plan=on_plan)
    spec = spec_of(getattr(subject, "__wrapped__", subject))
    with kept_arguments(arguments, keywords) as file:
        own = {"function": spec, "arguments": str(file)}
        job = Job(factory=FACTORY, target=aim, settings=own, imports=tuple(imports))
        if jit:
            job = replace(job, jit=dict(jit))
        return advise_job(job, limit, folder, timeout, on_progress, on_plan=on_plan, source=spec)


def _limit(fit: int | str | None) -> Capacity | None:
    return Capacity(size=fit) if isinstance(fit, int) else parse_capacity(fit) if fit else None


def _target_of(limit: Capacity | None) -> str:
    """The target of a chip that a program is to fit; by default this machine."""
    for family in ("tpu", "cuda"):
        name = limit.name.removeprefix("tpu") if limit is not None else ""
        try:
            return parse_target(f"{family}-{name}").name
        except CommandError:
            continue
    return "cpu"


def advise_job(
    job: Job,
    limit: Capacity | None,
    cache: Path,
    timeout: float | None = MAX_SECONDS,
    on_progress: Callable[[str], None] = lambda _: None,
    *,
    on_plan: Callable[[MemoryView], None] = lambda _: None,
    source: str = "",
) -> AdviceReport:
    """The same of a job; `source` names the function in whose file to look for jax.jit."""
    known = KnownPlans(cache)
    words = f"of {source or job.factory} for {job.target}"
    planned = plan_in_child(
        replace(job, has_fingerprint=True, has_calls=True),
        timeout=timeout,
        on_progress=lambda doing: on_progress(f"{doing} {words}"),
    )
    memory = planned.memory.memory
    on_plan(memory)
    report = advise_on(memory, space=planned.memory.space.name)
    trials = Trials(
        job,
        known.keep(planned),
        known,
        timeout,
        lambda doing: on_progress(f"tries {doing} {words}"),
    )
    changes = list(propose(memory, report, planned.target, source or job.factory, planned.facts))
    tried = trials.try_all(changes)
    compiled = trials.without_dominated([one for one in tried if one.found is not None])
    helpful = [one for one in compiled if _saved(trials, one) > _WORTH * report.size]
    together = (
        find_together(trials, helpful) if limit is None else find_cheapest(trials, helpful, limit)
    )
    shown = [one for one in compiled if one in helpful or one.changes[0].promise is not None]
    got = [_as_advice(trials, one) for one in shown]
    scoped = advise_limit(job, timeout, lambda doing: on_progress(f"{doing} {words}"))
    got += [] if scoped is None else [scoped]
    got.sort(key=lambda piece: -piece.saves)
    return replace(
        report,
        advice=(*got, *_untried(report, tried)),
        target=job.target,
        together=together,
        notes=(*report.notes, *_notes(trials, tried, shown)),
    )


def _saved(trials: Trials, tried: Tried) -> int:
    return trials.base.plan.size - tried.size


def _as_advice(trials: Trials, tried: Tried) -> Advice:
    [change] = tried.changes
    promise = change.promise
    return Advice(
        rule=change.rule,
        title=change.title if promise is None else promise.title,
        argument=change.argument,
        least=None if promise is None else promise.least,
        most=None if promise is None else promise.most,
        got=_saved(trials, tried),
        method="compiled",
        confidence="high",
        cost=trials.cost(tried),
        how=tried.how(),
        link=change.link,
    )


def _untried(report: AdviceReport, tried: Sequence[Tried]) -> list[Advice]:
    """Advice of rules without a change to compile: a possibility, whatever was planned."""
    decided = {one.changes[0].rule for one in tried}
    return [
        replace(piece, least=None, most=None, method="possible", confidence="low")
        for piece in report.advice
        if piece.rule not in decided
    ]


def _notes(trials: Trials, tried: Sequence[Tried], shown: Sequence[Tried]) -> list[str]:
    """Notes on changes that save nothing, and on those that could not be compiled."""
    notes = []
    for one in tried:
        title = one.changes[0].title
        if one.found is None:
            notes.append(f"could not be compiled: {title}: {one.problem}")
        elif one not in shown:
            saved = _saved(trials, one)
            what = "saves" if saved >= 0 else "takes"
            notes.append(f"compiled: {title}: {what} {format_bytes(abs(saved))}")
    return notes
