"""`hlomem link`: a program linked by libtpu with our packing of its temporaries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hlomem.base.errors import EXIT_FINDING, EXIT_OK
from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.cli.arguments import with_options
from hlomem.cli.factory import FACTORY_OPTIONS, parse_settings
from hlomem.cli.options import REPORT
from hlomem.cli.progress import progress
from hlomem.cli.screen import write_report
from hlomem.report.screens.text import Line, width, wrapped

if TYPE_CHECKING:
    from hlomem.jax.compile.messages import Linked
    from hlomem.jax.linking.front import LinkReport


@click.command("link")
@with_options(FACTORY_OPTIONS)
@click.option("-o", "--output", metavar="EXECUTABLE", type=Path, help="Write the executable here.")
@click.option("--force", is_flag=True, help="Overwrite EXECUTABLE.")
@with_options(REPORT)
def command(
    factory: str,
    target: str,
    settings: tuple[str, ...],
    imports: tuple[str, ...],
    timeout: float,
    output: Path | None,
    force: bool,
    **shown: Any,
) -> int:
    """Link a program for a TPU with a smaller plan (an experiment).

    FACTORY is one of `hlomem compile`, TARGET a TPU. libtpu compiles the program, hlomem packs its
    temporaries again, its checker checks the plan, and libtpu links the smaller of both. The file
    is what jax.experimental.serialize_executable returns, pickled, for one release of libtpu,
    which is added to its name. Nothing of it was ever run on a TPU. The exit code is 1 if the
    program does not fit either way. See docs/link.md.
    """
    from hlomem.jax.linking.front import link  # noqa: PLC0415 - starts fast

    with progress() as draw:
        report = link(
            factory,
            target=target,
            output=output,
            settings=parse_settings(settings),
            imports=imports,
            timeout=timeout,
            force=force,
            on_progress=lambda doing: draw(f"{doing} {factory} for {target}"),
        )
    write_report(lambda: _content(factory, report), lambda: _draw(report, width()), **shown)
    return EXIT_FINDING if report.linked.refusal else EXIT_OK


def _content(factory: str, report: LinkReport) -> dict[str, Any]:
    return {
        "kind": "link",
        "factory": factory,
        "target": report.target,
        "is_experiment": True,
        "fits": not report.linked.refusal,
        "is_packed": report.linked.is_packed,
        "is_rescued": report.linked.is_rescued,
        **msgspec.to_builtins(report.linked),
        "output": str(report.output) if report.output else None,
        "facts": msgspec.to_builtins(report.facts),
    }


def _draw(report: LinkReport, columns: int) -> list[Line]:
    linked = report.linked
    head = f"{report.facts.module_name}  {report.target}  libtpu {linked.libtpu}  an experiment"
    sentences = (_self_test(linked), _packing(linked), _end(linked, report.output))
    lines = [line for words in sentences for line in wrapped(words, columns, "  ")]
    return [[(visible(head), "bold")], *lines]


def _self_test(linked: Linked) -> str:
    same = f"{linked.code_bytes:,} bytes of machine code"
    if not linked.jax_refusal:
        return f"self-test: libtpu's own plan, phase by phase, gives JAX's {same}"
    refused = f"JAX's compile refuses it: {visible(linked.jax_refusal)} Self-test on a small"
    return f"{refused} program: {same}, phase by phase, are those of JAX"


def _packing(linked: Linked) -> str:
    before = f"temporaries in HBM: {format_bytes(linked.libtpu_temporaries)} by libtpu"
    if not linked.is_packed:
        return f"{before}; our packing is not smaller"
    share = linked.temporaries / linked.libtpu_temporaries
    total = f"all of HBM {format_bytes(linked.libtpu_hbm)}, now {format_bytes(linked.hbm)}"
    return f"{before}, {format_bytes(linked.temporaries)} packed ({share:.3f}); {total}"


def _end(linked: Linked, output: Path | None) -> str:
    whose = "our packing" if linked.is_packed else "libtpu's own plan"
    if linked.refusal:
        return f"not linked: libtpu refuses {whose}, too: {visible(linked.refusal)}"
    said = f"linked with {whose}, checked before and as read back from the executable"
    return f"{said}: {visible(str(output))}" if output else f"{said}; -o keeps it"
