"""`hlomem show`: a dump or a module in one screen or as JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hlomem.api.folder import ModuleSize, draw_list, list_modules, measure_all
from hlomem.api.load import list_programs_of, load_any, read_source
from hlomem.api.protos import holds_programs, list_programs
from hlomem.base.errors import EXIT_OK
from hlomem.cli.options import WHICH_DUMP
from hlomem.cli.screen import write_screen
from hlomem.dump.dump import Dump
from hlomem.hlo.ir import HloModule
from hlomem.report.data.module_overview import build_module_overview
from hlomem.report.data.overview import build_overview
from hlomem.report.json import encode_dump, encode_module_overview
from hlomem.report.screens.module_overview_text import draw_module_overview
from hlomem.report.screens.overview_text import draw_overview
from hlomem.report.screens.text import Line, width, write_lines


@click.command("show")
@click.argument("path", metavar="DUMP|MODULE")
@WHICH_DUMP
@click.option("--json", "as_json", is_flag=True, help="All records as JSON (schema hlomem/1).")
def command(path: str, module: str | None, as_json: bool) -> int:
    """Show a memory dump, or an HLO module, in one screen.

    DUMP is a file XLA wrote (the other files of the dump are found next to it), a folder of dumps,
    or `-` for standard input; gzip is recognised. A folder of several is listed, largest first.
    MODULE is HLO text. Both may be in one file: an XLA proto (.hlo.pb), a profile (.xplane.pb), an
    entry of JAX's compilation cache or its folder, a serialized executable.
    """
    if path != "-" and Path(path).is_dir() and module is None and not as_json:
        modules = list_modules(Path(path))
        if len(modules) > 1:
            write_lines(_draw_list(measure_all(modules, read_source)))
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
        write_screen(shown, loaded if isinstance(loaded, Dump) else None)
    return EXIT_OK


def _lists_programs(path: Path) -> bool:
    """List the programs of a proto, a profile or a cache, if it has several."""
    has_text_dump = list_modules(path) if path.is_dir() else not holds_programs(path)
    programs = [] if has_text_dump else list_programs_of(path)
    if len(programs) < 2:
        return False
    lines: list[Line] = [[(f"{len(programs)} programs; show one with --module NAME", "bold")]]
    lines += [[(line[:14], "cyan"), (line[14:], "")] for line in list_programs(programs)]
    write_lines(lines)
    return True


def _draw_list(sized: list[ModuleSize]) -> list[Line]:
    """A folder's programs with their sizes; unreadable ones are marked."""
    head = f"{len(sized)} programs, by what each reserves; show one with --module NAME"
    return [[(head, "bold")], *([(line, "")] for line in draw_list(sized))]
