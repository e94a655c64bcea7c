"""`hlomem show`: what a dump says, in one screen or as JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hlomem.api.load import Module, list_modules, list_programs_of, load_any, load_module
from hlomem.api.protos import holds_programs, list_programs
from hlomem.base.errors import EXIT_OK, HlomemError
from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.cli.options import WHICH_DUMP
from hlomem.hlo.ir import HloModule
from hlomem.report.data.module_overview import build_module_overview
from hlomem.report.data.overview import build_overview
from hlomem.report.json import encode_dump, encode_module_overview
from hlomem.report.screens.module_overview_text import draw_module_overview
from hlomem.report.screens.overview_text import draw_overview
from hlomem.report.screens.text import Line, shorten, width, write_lines


@click.command("show")
@click.argument("path", metavar="DUMP|MODULE")
@WHICH_DUMP
@click.option("--json", "as_json", is_flag=True, help="All records as JSON (schema hlomem/1).")
def command(path: str, module: str | None, as_json: bool) -> int:
    """Show a memory dump, or an HLO module, in one screen.

    DUMP is a file XLA wrote (the others of the same dump are found beside it), a folder of dumps,
    or `-` for standard input; gzip is recognised. A folder of many is listed. MODULE is HLO text.
    Both may be in one file: one of XLA's protos (.hlo.pb), a profile (.xplane.pb), an entry of
    JAX's compilation cache or its folder, a serialized executable.
    """
    if path != "-" and Path(path).is_dir() and module is None and not as_json:
        modules = list_modules(Path(path))
        if len(modules) > 1:
            write_lines(_draw_list(modules, width()))
            return EXIT_OK
    if path != "-" and module is None and not as_json and _lists_programs(Path(path)):
        return EXIT_OK
    loaded = load_any(path, module=module)
    if isinstance(loaded, HloModule):
        program = build_module_overview(loaded)
        shown = (
            encode_module_overview(program) if as_json else draw_module_overview(program, width())
        )
    else:
        shown = encode_dump(loaded) if as_json else draw_overview(build_overview(loaded), width())
    if isinstance(shown, bytes):
        sys.stdout.buffer.write(shown + b"\n")
    else:
        write_lines(shown)
    return EXIT_OK


def _lists_programs(path: Path) -> bool:
    """Write the programs of a proto, a profile or a cache, if it has several."""
    has_text_dump = list_modules(path) if path.is_dir() else not holds_programs(path)
    programs = [] if has_text_dump else list_programs_of(path)
    if len(programs) < 2:
        return False
    lines: list[Line] = [[(f"{len(programs)} programs; show one with --module NAME", "bold")]]
    lines += [[(line[:14], "cyan"), (line[14:], "")] for line in list_programs(programs)]
    write_lines(lines)
    return True


def _draw_list(modules: list[Module], columns: int) -> list[Line]:
    """A folder's dumps with their sizes; one that cannot be read says so and stops nothing."""
    lines: list[Line] = [[(f"{len(modules)} dumps; show one with --module NAME", "bold")]]
    for module in modules:
        try:
            # The first file has the allocations, which is all a size needs.
            overview = build_overview(load_module(Module(module.name, module.files[:1])))
            size = "-" if overview.total is None else format_bytes(overview.total)
        except HlomemError:
            size = "unreadable"
        lines.append(
            [
                (f"{size:>11}  ", "cyan"),
                (shorten(visible(module.name), columns - 13), ""),
            ]
        )
    return lines
