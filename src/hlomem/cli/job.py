"""`hlomem job`: the memory of a whole job, before it runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlomem.api.job_forecast import find_largest, open_job
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import EXIT_FINDING, EXIT_OK, CommandError
from hlomem.base.source import visible
from hlomem.cli.arguments import with_options
from hlomem.cli.factory import parse_settings
from hlomem.cli.options import REPORT
from hlomem.cli.progress import progress
from hlomem.cli.screen import write
from hlomem.job.log import encode_log
from hlomem.machines.capacity import parse_capacity
from hlomem.report.screens.forecast_text import draw_forecast, draw_largest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.api.job_forecast import OpenedJob
    from hlomem.job.log import JobLog


_NO_POOL = "how large the pool may be is not known: give --pool SIZE"


@click.command("job")
@click.argument("job", metavar="FILE.py:JOB|LOG|PROFILE")
@click.option(
    "--target",
    metavar="TARGET",
    default="cuda-h100",
    show_default=True,
    help="The machine a job is rehearsed for.",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of JOB.")
@click.option("--pool", metavar="SIZE|CHIP", help="What the pool may take.")
@click.option(
    "--fraction",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="F",
    help="The share of the device the pool may take; 0.75, as JAX.",
)
@click.option("--growth", is_flag=True, help="A pool that grows (…PREALLOCATE=false).")
@click.option("--tuned", metavar="FILE", help="The autotuner's choices on a device.")
@click.option("--no-tuning", is_flag=True, help="No autotuner: --xla_gpu_autotune_level=0.")
@click.option("--largest", metavar="NAME", help="The largest value of a setting that fits.")
@click.option("--step", type=click.IntRange(min=1), default=1, help="Its values are multiples.")
@click.option("--log", metavar="OUT", type=Path, help="Write the log of the job.")
@click.option("--force", is_flag=True, help="Overwrite OUT.")
@with_options(REPORT)
def command(
    job: str,
    target: str,
    settings: tuple[str, ...],
    pool: str | None,
    fraction: float | None,
    growth: bool,
    tuned: str | None,
    no_tuning: bool,
    largest: str | None,
    step: int,
    log: Path | None,
    force: bool,
    **shown: Any,
) -> int:
    """Forecast the memory of a whole job: does it fit, and in how small a pool.

    FILE.py:JOB is a function of a job, which puts arrays, calls programs and drops what it holds;
    its programs are compiled for TARGET, which need not be here, and nothing runs. LOG is what
    `hlomem.jax.job()` or --log wrote. PROFILE is an .xplane.pb: what was recorded is replayed in
    another pool. The exit code is 1 when the job does not fit. docs/job.md says more.
    """
    if pool is not None and fraction is not None:
        raise CommandError("`--pool` and `--fraction` exclude each other")
    with progress() as draw:
        rehearse = _rehearsing(draw, pool is not None, tuned=tuned, tunes=not no_tuning)
        opened = open_job(job, target, parse_settings(settings), rehearse)
    limit = _limit(opened, pool, fraction)
    options: dict[str, Any] = {"grows": growth, "tunes": not no_tuning}
    if log is not None:
        if opened.log is None:
            raise CommandError("a profile has no log to write")
        write_files(log.parent, {log.name: [encode_log(opened.log)]}, force=force)
        click.echo(visible(str(log)), err=True)
    if largest is not None:
        with progress() as draw:
            found = find_largest(opened, largest, step, limit, draw, **options)
        write("largest", found, draw_largest, **shown)
        return EXIT_OK if found.value else EXIT_FINDING
    report = opened.report(limit, **options)
    write("job", report, draw_forecast, **shown)
    return EXIT_OK if report.forecast.failure is None else EXIT_FINDING


def _rehearsing(
    draw: Callable[[str], None], has_pool: bool, **tuning: Any
) -> Callable[[str, str, Mapping[str, Any]], JobLog]:
    """A rehearsal that says what it is at; JAX is imported for it, and takes no device."""

    def rehearse(job: str, target: str, settings: Mapping[str, Any]) -> JobLog:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        from hlomem.jax.rehearsal import rehearse_file  # noqa: PLC0415 - only a function needs it
        from hlomem.jax.target_kinds import parse_target  # noqa: PLC0415 - the same

        if not has_pool and parse_target(target).capacity is None:
            raise CommandError(_NO_POOL)
        words = "".join(f" {name}={value}" for name, value in settings.items())
        draw(f"compiling the programs of {job} for {target}{words}")
        return rehearse_file(job, target, settings, **tuning)

    return rehearse


def _limit(opened: OpenedJob, pool: str | None, fraction: float | None) -> int:
    if pool is not None:
        return parse_capacity(pool).size
    if opened.device is not None:
        return round(opened.device * (fraction or opened.default_fraction))
    if opened.limit is not None:
        return opened.limit
    raise CommandError(_NO_POOL)
