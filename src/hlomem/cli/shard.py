"""`hlomem shard`: what lies on each device, what is gathered, and by which line."""

from __future__ import annotations

from typing import Any

import click

from hlomem.api.load import load_program, read_source
from hlomem.api.opening import open_memory
from hlomem.api.shard import shard_memory
from hlomem.base.errors import CommandError
from hlomem.cli.advise import is_factory
from hlomem.cli.arguments import with_options
from hlomem.cli.factory import SET, parse_settings
from hlomem.cli.options import BACKEND, CHIP, HLO_TEXT, REPORT, SPACE, WHICH_DUMP
from hlomem.cli.progress import progress
from hlomem.cli.screen import write
from hlomem.report.screens.shard_text import draw_shard


@click.command("shard")
@click.argument("path", metavar="DUMP|MODULE:FACTORY")
@click.option(
    "--target",
    default="",
    metavar="TARGET",
    help="Compile a FACTORY for: tpu-v5e:2x2, cuda-h100:8, …  [default: cpu]",
)
@SET
@click.option(
    "--log", metavar="FILE", help="A log of the compile, with the partitioner's warnings."
)
@click.option("--plan-only", is_flag=True, help="Promise from the plan, and compile no change.")
@with_options((WHICH_DUMP, HLO_TEXT, BACKEND, CHIP, SPACE, *REPORT))
def command(
    path: str,
    target: str,
    settings: tuple[str, ...],
    log: str | None,
    plan_only: bool,
    module: str | None,
    hlo: str | None,
    **shown: Any,
) -> int:
    """Show how arrays are split over devices, what is on all of them, and why.

    Arguments, results and large values are listed with their bytes on each device, their sharding
    by the names of the mesh's axes, and what splitting them further would leave; collectives with
    what they gather and how long that stays. Findings name a line and a change.

    Of a DUMP, XLA's *before_optimizations.txt next to it tells whole shapes and shardings, and
    changes are promised from the plan alone. Of a FACTORY (as for `hlomem compile`:
    train.py:make_step) each change is made and compiled for the target, without writing a file.
    """
    backend, chip, space = (shown.pop(name) for name in ("backend", "chip", "space"))
    warnings = read_source(log).text.split("\n") if log else []
    if target or settings or is_factory(path):
        given = {"--module": module, "--hlo": hlo, "--backend": backend, "--chip": chip}
        for option, value in {**given, "--space": space}.items():
            if value:
                raise CommandError(f"`{option}` is for a dump, not for a factory")
        return _of_factory(path, target, settings, warnings, plan_only, **shown)
    memory = open_memory(
        path,
        module=module,
        program=load_program(hlo) if hlo else None,
        backend=backend or "",
        chip=chip or "",
    )
    report = shard_memory(memory, space=space, log="\n".join(warnings))
    return write("shard", report, draw_shard, memory.dump, **shown)


def _of_factory(
    factory: str,
    target: str,
    settings: tuple[str, ...],
    warnings: list[str],
    plan_only: bool,
    **shown: Any,
) -> int:
    from hlomem.jax.trials.shard import shard  # noqa: PLC0415 - only this needs JAX

    with progress() as draw:
        report = shard(
            factory,
            target=target or None,
            settings=parse_settings(settings),
            is_tried=not plan_only,
            log="\n".join(warnings),
            on_progress=draw,
        )
    return write("shard", report, draw_shard, **shown)
