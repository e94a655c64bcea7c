"""`hlomem plan`: from HLO text to the dumps XLA would write."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from hlomem.api.load import encode, load, load_any, load_program, read_source
from hlomem.api.plan import ORDERS, Plan, plan
from hlomem.base.atomic_files import write_files, write_text
from hlomem.base.errors import EXIT_FINDING, EXIT_OK, CommandError, InputError
from hlomem.base.gc_pause import collector_off
from hlomem.base.source import visible
from hlomem.cli.options import BACKEND, CHIP, WHICH_DUMP
from hlomem.cli.parameters import argument, declare, option
from hlomem.cli.process import keep, say, say_new_folder
from hlomem.cli.progress import working
from hlomem.hlo.ir import HloModule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


_PROTO_ENDING = ".hlo.pb"


@declare(
    "plan",
    argument("path", metavar="MODULE"),
    WHICH_DUMP,
    BACKEND,
    CHIP,
    option("--era", default="", metavar="ERA", help="Write as this XLA: K, jaxlib-0.7.2, …"),
    option("--like", metavar="DUMP", help="Write as the XLA that wrote DUMP."),
    option("--schedule", metavar="DUMP", help="Take the instruction order from DUMP."),
    option("--preset", metavar="DUMP", help="Take fast memory offsets from DUMP (TPU)."),
    option(
        "--order",
        choices=ORDERS,
        default=ORDERS[0],
        help="Number values as XLA does, or in text order (faster; the same offsets).",
    ),
    option(
        "-o",
        "--output",
        metavar="DIR",
        help="Write XLA's files into DIR, with --proto an HloProto as well; X.hlo.pb only that.",
    ),
    option("--proto", is_flag=True, help="Write an HloProto; for a text MODULE this needs jaxlib."),
    option("--force", is_flag=True, help="Overwrite files in DIR."),
    option("--json", "as_json", is_flag=True, help="All records as JSON (schema hlomem/1)."),
    option("--verify", is_flag=True, help="Check the plan; if it is wrong, write nothing."),
    option("--timings", is_flag=True, help="Print the CPU time of each stage on standard error."),
)
@collector_off()
def command(
    path: str,
    module: str | None,
    backend: str | None,
    chip: str | None,
    era: str,
    like: str | None,
    schedule: str | None,
    preset: str | None,
    order: str,
    output: str | None,
    proto: bool,
    force: bool,
    as_json: bool,
    verify: bool,
    timings: bool,
) -> int:
    """Plan a module's memory as XLA does, and write the same dumps.

    MODULE is HLO text as XLA prints it, gzipped or not, or `-`; or a file with the program as a
    proto; or a folder of dumps, with its largest program or the one named by --module. Text without
    a schedule gets one from --schedule, or else from a replica of XLA's scheduler for CPU or GPU.
    Without -o the dump goes to standard output. With it, DIR gets the files this XLA writes:
    STEM-buffer-assignment.txt and its companions. With --verify the exit code is 1 if the plan is
    wrong.
    """
    start = time.process_time()
    program = _load(path, module)
    loaded = time.process_time()
    with working(f"planning {path}"):
        made = plan(
            program,
            backend=backend or "",
            chip=chip or "",
            era=era,
            like=load(like) if like else None,
            schedule=load(schedule) if schedule else None,
            preset=load(preset) if preset else None,
            order=order,
            name=_stem(program.source_name),
        )
    keep(made)
    planned = time.process_time()
    if verify and not is_right(made):
        return EXIT_FINDING
    verified = time.process_time()
    _write(made, output, as_json=as_json, as_proto=proto, force=force)
    for note in made.notes:
        say(f"note: {note}")
    if timings:
        steps = {"load": loaded - start, **made.seconds, "verify": verified - planned}
        _say_timings({**steps, "write": time.process_time() - verified})
    return EXIT_OK


def _write(made: Plan, output: str | None, *, as_json: bool, as_proto: bool, force: bool) -> None:
    if as_json:
        from hlomem.report.json import encode_dump  # noqa: PLC0415 - few ask for it

        sys.stdout.buffer.write(encode_dump(made.dump) + b"\n")
    elif as_proto or (output is not None and output.endswith(_PROTO_ENDING)):
        _write_proto(made, output, force=force)
    else:
        write_plan(made, output, force=force)


def _load(path: str, module: str | None) -> HloModule:
    """The module of a file, or of a program of a folder, whose dump is not read."""
    if path != "-" and os.path.isdir(path):  # noqa: PTH112 - starts without pathlib
        found = _load_from_folder(path, module)
        if found is not None:
            return found
    loaded = load_any(path, module=module, as_program=True)
    if not isinstance(loaded, HloModule):
        raise InputError(f"{visible(path)}: this is a dump; `plan` needs the HLO module")
    return loaded


def _load_from_folder(name: str, module: str | None) -> HloModule | None:
    """The module of a dump of a folder; None if the folder has no dumps."""
    from pathlib import Path  # noqa: PLC0415 - not for files

    from hlomem.api.folder import (  # noqa: PLC0415
        DUMP_FLAGS,
        choose_module,
        list_modules,
        program_beside,
    )

    path = Path(name)
    if not list_modules(path):
        return None
    choice = choose_module(path, module, read_source)
    text = program_beside(choice.module.files[0])
    if text is None:
        where = visible(str(choice.module.files[0]))
        raise InputError(f"{where}: no HLO text next to this dump; {DUMP_FLAGS} writes both")
    if choice.reason:
        say(f"note: {choice.module.title}, {choice.reason}; --module chooses another")
    return load_program(text)


def is_right(made: Plan) -> bool:
    from hlomem.cli.verify import say_wrong  # noqa: PLC0415 - few ask for it

    return not say_wrong(made.dump, made.stages.module, made.stages.options.machine)


def _write_proto(made: Plan, output: str | None, *, force: bool) -> None:
    """Write an HloProto: into its file, to standard output, or together with XLA's texts."""
    if output is None and sys.stdout.isatty():
        raise CommandError("an HloProto is binary: give -o X.hlo.pb")
    data = made.to_proto()
    if output is None:
        sys.stdout.buffer.write(data)
    elif output.endswith(_PROTO_ENDING):
        folder, name = os.path.split(output)
        write_files(folder or ".", {name: [data]}, force=force)
    else:
        write_plan(made, output, force=force, extra={made.name + _PROTO_ENDING: [data]})


def write_plan(
    made: Plan,
    output: str | Path | None,
    *,
    force: bool,
    extra: Mapping[str, Iterable[bytes]] | None = None,
) -> None:
    """Write XLA's files of a plan; all of them or, on an error, none."""
    if output is None:
        for text in [made.text(name) for name in made.files]:
            write_text(text)
    else:
        pieces: dict[str, Iterable[bytes]] = {
            name: map(encode, made.pieces(name)) for name in made.files
        }
        say_new_folder(output)
        write_files(output, {**pieces, **(extra or {})}, force=force)


def _stem(path: str) -> str:
    """The stem of the files: the module's file name without its ending."""
    name = os.path.basename(path).removesuffix(".gz")  # noqa: PTH119 - starts without pathlib
    for ending in (".txt", ".hlo", ".pb", ".hlo"):
        name = name.removesuffix(ending)
    return "module" if path == "<stdin>" or not name else name


def _say_timings(seconds: dict[str, float]) -> None:
    for name, spent in seconds.items():
        say(f"{name:<12} {1000 * spent:9.1f} ms")
    say(f"{'total':<12} {1000 * sum(seconds.values()):9.1f} ms of CPU time")
