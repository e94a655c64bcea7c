"""`hlomem oom`: explains an out-of-memory message."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from hlomem.api.load import read_source
from hlomem.base.errors import CommandError, InputError
from hlomem.base.source import Source, visible
from hlomem.cli.arguments import with_options
from hlomem.cli.factory import parse_settings
from hlomem.cli.options import REPORT
from hlomem.cli.progress import progress
from hlomem.cli.screen import write_report
from hlomem.report.oom.explanation import build_oom
from hlomem.report.oom.log import read_oom
from hlomem.report.screens.oom_text import draw_oom
from hlomem.report.screens.text import Line, width

if TYPE_CHECKING:
    from hlomem.report.data.kernels import KernelReport


def _source(path: str) -> Source:
    """The text of a file, or the argument itself where it is a message and names no file."""
    if path == "-" or os.path.exists(path) or build_oom(read_oom(path)) is None:  # noqa: PTH110 - of any length
        return read_source(path)
    return Source("the message", path)


@click.command("oom")
@click.argument("path", metavar="[LOG]", default="-")
@click.option(
    "--kernel",
    "factory",
    metavar="FILE:FACTORY",
    help="Try which block size of a kernel to halve, as `hlomem kernel --shrink`.",
)
@click.option("--target", metavar="TARGET", help="The TPU to try it for: tpu-v5e:2x2, …")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the factory."
)
@with_options(REPORT)
def command(
    path: str, factory: str | None, target: str | None, settings: tuple[str, ...], **shown: Any
) -> int:
    """Explain an out-of-memory message of XLA, from a log or pasted.

    LOG is any file that contains the message, `-`, the default, for standard input, or the message
    itself. Messages of TPU, GPU and CPU at compile and run time are recognised, as well as the
    allocator's dump and the warning of rematerialization. For a kernel that needs more VMEM than it
    may use, --kernel names the factory that makes it: smaller blocks are compiled until they fit.
    """
    source = _source(path)
    oom = build_oom(read_oom(source.text, source.name))
    if oom is None:
        raise InputError(
            f"{visible(source.name)}: no out-of-memory message of XLA in this text\n"
            "  it begins with RESOURCE_EXHAUSTED, or is a warning of bfc_allocator.cc"
        )
    if factory is not None and oom.kernel is None:
        raise CommandError("--kernel tries block sizes, but the message is not about a kernel")
    tried = None if factory is None else _try(factory, target, settings)

    def content() -> dict[str, Any]:
        fields = {name: getattr(oom, name) for name in oom.__struct_fields__}
        return {"kind": "oom", **fields, **({} if tried is None else {"tried": tried})}

    return write_report(content, lambda: [*draw_oom(oom, width()), *_draw(tried)], **shown)


def _try(factory: str, target: str | None, settings: tuple[str, ...]) -> KernelReport:
    from hlomem.jax.kernels.front import measure_factory  # noqa: PLC0415 - few ask for it

    if target is None:
        raise CommandError("--kernel compiles for a TPU: give --target, as in tpu-v5e:2x2")
    with progress() as draw:
        return measure_factory(
            factory,
            targets=[target],
            settings=parse_settings(settings),
            is_shrink=True,
            on_progress=draw,
        )


def _draw(tried: KernelReport | None) -> list[Line]:
    if tried is None:
        return []
    from hlomem.report.screens.kernels_text import draw_kernels  # noqa: PLC0415 - as above

    return [[], [("What was tried", "bold")], *draw_kernels(tried, width())]
