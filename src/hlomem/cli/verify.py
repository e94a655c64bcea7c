"""`hlomem verify`: checks a memory plan."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlomem import __version__
from hlomem.api.load import load, load_program
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import EXIT_FINDING, EXIT_OK
from hlomem.base.gc_pause import collector_off
from hlomem.check.verify import verify
from hlomem.cli.options import BACKEND, CHIP, HLO_TEXT, REPORT, WHICH_DUMP
from hlomem.cli.parameters import argument, declare, option
from hlomem.cli.process import say
from hlomem.cli.progress import working
from hlomem.cli.screen import write
from hlomem.machines.registry import given_machine
from hlomem.report.screens.text import width
from hlomem.report.screens.verdict_text import draw_verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.dump.dump import Dump
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.machine import Machine


@declare(
    "verify",
    argument("path", metavar="DUMP"),
    WHICH_DUMP,
    HLO_TEXT,
    BACKEND,
    CHIP,
    *REPORT,
    option("--sarif", metavar="FILE", convert=Path, help="Also write the findings as SARIF 2.1.0."),
    option("--force", is_flag=True, help="Overwrite FILE."),
)
@collector_off()
def command(
    path: str,
    module: str | None,
    hlo: str | None,
    backend: str | None,
    chip: str | None,
    sarif: Path | None,
    force: bool,
    **shown: Any,
) -> int:
    """Check that a memory plan is correct.

    DUMP is a file of it, or a folder. Without the HLO module, only what the dump shows is checked,
    and the rest is listed. The exit code is 1 if there are findings.
    """
    dump = load(path, module=module)
    program = load_program(hlo) if hlo else None
    with working(f"checking {path}"):
        verdict = verify(dump, module=program, machine=given_machine(backend or "", chip or ""))
    if sarif is not None:
        import json  # noqa: PLC0415 - few ask for it

        from hlomem.check.sarif import build_sarif  # noqa: PLC0415

        text = json.dumps(build_sarif(verdict, __version__, _file_of(path, dump)), indent=1)
        write_files(sarif.parent, {sarif.name: [text.encode()]}, force=force)
    write("verdict", verdict, partial(draw_verdict, sequence=sequence_of(dump)), dump, **shown)
    return EXIT_OK if verdict.is_clean else EXIT_FINDING


def say_wrong(dump: Dump, module: HloModule, machine: Machine) -> bool:
    """Whether a plan of ours is wrong; findings are printed on standard error."""
    verdict = verify(dump, module=module, machine=machine)
    for line in [] if verdict.is_clean else draw_verdict(verdict, width(), sequence_of(dump)):
        say("".join(piece for piece, _ in line).rstrip())
    return not verdict.is_clean


def sequence_of(dump: Dump) -> Sequence[str]:
    """The instruction sequence of a dump; empty without live ranges."""
    return dump.live_ranges.sequence if dump.live_ranges else ()


def _file_of(path: str, dump: Dump) -> str:
    """The file to report for a dump: the first one in a folder, else the path itself."""
    return path if path == "-" or not Path(path).is_dir() else dump.parts[0].name
