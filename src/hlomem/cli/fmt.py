"""`hlomem fmt`: reads files and prints them back unchanged."""

from __future__ import annotations

from pathlib import Path

import click

from hlomem.api.folder import files_of
from hlomem.api.load import is_module_text, read_source
from hlomem.base.atomic_files import write_text
from hlomem.base.errors import EXIT_FINDING, EXIT_OK, HlomemError
from hlomem.base.source import Source, visible
from hlomem.cli.process import say
from hlomem.dump.compare import first_difference
from hlomem.dump.dump import Dump, join_parts
from hlomem.dump.parts import parse_part
from hlomem.hlo import canonicalize, format_module, parse


@click.command("fmt")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--check", is_flag=True, help="Print nothing; exit 1 if any file would change.")
@click.option(
    "--canonical",
    is_flag=True,
    help="Print HLO as XLA prints what it reads: shapes inferred, names made unique.",
)
def command(files: tuple[str, ...], check: bool, canonical: bool) -> int:
    """Read files XLA wrote and print them back, byte for byte.

    Each FILE, of a dump or an HLO module, is parsed on its own (`-` is standard input, gzip is
    recognised) and printed from the parsed records. Text that was kept but not understood is
    reported on standard error. An HLO module may be in any form that XLA's
    parser reads.
    """
    worst = EXIT_OK
    for file in files:
        try:
            worst = max(worst, _format(file, check, canonical))
        except HlomemError as error:
            say(f"error: {error}")
            worst = max(worst, error.exit_code)
    return worst


def _format(file: str, check: bool, canonical: bool) -> int:
    source = read_source(file)
    if canonical:
        text = canonicalize(source.text, source.name)
    elif is_module_text(source.text):
        text = format_module(parse(source.text, source.name, lazy=False))
    else:
        dump = join_parts(file, [parse_part(source)])
        text = dump.to_text()
        for note in _notes(dump, file):
            say(f"note: {note}")
    if not check:
        write_text(text)
        return EXIT_OK
    if text == source.text:
        return EXIT_OK
    write_text(f"{_describe_difference(source, text)}\n")
    return EXIT_FINDING


def _notes(dump: Dump, file: str) -> list[str]:
    """The notes on this file alone; files found next to it are not missing."""
    alone = file == "-" or len(files_of(Path(file))) == 1
    return [note.text for note in dump.notes if alone or note.kind != "missing"]


def _describe_difference(source: Source, text: str) -> str:
    number, had, would = first_difference(source.text, text)
    return (
        f"{visible(source.name)}:{number}: would change\n"
        f"  has    {_shown(had)}\n  prints {_shown(would)}"
    )


def _shown(line: str | None) -> str:
    return "(no such line)" if line is None else visible(line)[:200]
