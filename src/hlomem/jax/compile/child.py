"""The child of `hlomem compile`: a factory's program, lowered and compiled with a dump.

It reads an `Errand` from standard input, leaves files as `messages.py` says, and ends with its work
or with standard input; then it removes its folder and kills its process group.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
import threading
import traceback
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec

from hlomem.base.errors import CommandError, HlomemError
from hlomem.jax.compile.call_counts import counted_calls
from hlomem.jax.compile.changed_sources import install
from hlomem.jax.compile.dead_constraints import dead_constraints
from hlomem.jax.compile.decisions import Decisions, placing_functions
from hlomem.jax.compile.exchanges import find_exchanges
from hlomem.jax.compile.factories import find_factory, make_program
from hlomem.jax.compile.messages import (
    DUMP,
    EXECUTABLE,
    FACTS,
    KERNELS,
    LINKED,
    OUTCOME,
    Errand,
    Facts,
    Outcome,
    write_message,
)
from hlomem.jax.compile.programs import knowing_the_chip, module_name, result_names, write_dump
from hlomem.jax.compile.shardings import (
    Notes,
    argument_lines,
    constrain_by_mesh_alone,
    donated_names,
    enter_mesh,
    name_donated,
    placed_arguments,
    rejitted,
    result_lines,
    with_argument_shardings,
)
from hlomem.jax.flops import count_flops
from hlomem.jax.probes import instrument
from hlomem.jax.probes.levers import Levers
from hlomem.jax.target_kinds import MissingSoftwareError, TpuTarget, parse_target, version_of

if TYPE_CHECKING:
    from hlomem.jax.compile.factories import FactoryProgram
    from hlomem.jax.compile.messages import Job

_MAX_TRACE = 12
"""Lines of a traceback that are handed on."""
_PACKAGES = ("jax", "jaxlib", "libtpu", "jax-cuda13-plugin", "jax-cuda12-plugin")
_OURS = Path(__file__).parent


def main() -> None:
    """Do what standard input says."""
    errand = msgspec.json.decode(sys.stdin.buffer.readline(), type=Errand)
    folder = Path(errand.folder)
    threading.Thread(target=_leave_with_parent, args=(folder,), daemon=True).start()
    do_errand(errand)


def do_errand(errand: Errand) -> NoReturn:
    """Do a job, leave its outcome, and end this process."""
    sys.path[:] = errand.path
    folder = Path(errand.folder)
    write_message(folder, OUTCOME, _outcome(errand.job, folder))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # what a compiler has running is not worth waiting for


def _leave_with_parent(folder: Path) -> None:
    """Wait for the end of standard input, which is that of the parent."""
    while os.read(0, 4096):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _outcome(job: Job, folder: Path) -> Outcome:
    kind: Literal["factory", "compiler"] = "factory"
    try:
        if job.kernels is not None:
            return _measured_kernels(job, folder)
        program, facts = _lower(job)
        write_message(folder, FACTS, facts)
        kind = "compiler"
        if job.is_linked:
            return _linked(program.lowered, job, folder)
        options = {**program.compiler_options, **job.options}
        return Outcome(refusal=write_dump(program.lowered, folder / DUMP, options).refusal)
    except MissingSoftwareError as error:
        return Outcome(problem=str(error), kind="missing")
    except CommandError as error:
        return Outcome(problem=str(error), kind="usage")
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent must say so
        words = f"{type(error).__name__}: {error}".strip()
        return Outcome(problem=words, kind=kind, trace=_users_lines(error))


def _measured_kernels(job: Job, folder: Path) -> Outcome:
    from hlomem.jax.kernels.measuring import measure_kernels  # noqa: PLC0415 - few ask for it

    install(job.texts)
    for name in job.imports:
        import_module(name)
    write_message(folder, KERNELS, measure_kernels(job, folder))
    return Outcome()


def _linked(lowered: Any, job: Job, folder: Path) -> Outcome:
    """Link a program instead; all that goes wrong on the way is told in one line."""
    from hlomem.jax.linking.program import link_program  # noqa: PLC0415 - few ask for it

    target = parse_target(job.target)
    assert isinstance(target, TpuTarget), "it was asked for"
    try:
        linked = link_program(lowered, target, folder / EXECUTABLE)
        write_message(folder, LINKED, linked)
    except HlomemError as error:
        return Outcome(problem=str(error), kind="link")
    except OSError as error:
        return Outcome(problem=f"its executable: {error.strerror or error}", kind="link")
    return Outcome()


def _lower(job: Job) -> tuple[FactoryProgram, Facts]:
    target = parse_target(job.target)
    install(job.texts)
    if job.value is not None:
        Levers(job.value.key, job.value.change, job.value.site).install()
        instrument.install()
    for name in job.imports:
        import_module(name)
    calls: dict[str, int] = {}
    values: dict[str, list[str]] = {}
    tracing = partial(counted_calls, calls, values) if job.has_calls else nullcontext
    is_changed = job.arguments or job.result_shardings or job.has_mesh or job.decisions
    notes = Notes() if job.has_shardings or is_changed else None
    decisions = None
    if notes is not None:
        notes.install()
        decisions = Decisions(notes.origins, job.decisions)
        decisions.install()
    if job.has_mesh:
        constrain_by_mesh_alone()
    reshard = None if notes is None else partial(_reshard, job, notes)
    factory = find_factory(job.factory)
    if decisions is not None:
        decisions.install_in_libraries()
    program = knowing_the_chip(
        target, lambda: make_program(factory, job.settings, target, job.jit, tracing, reshard)
    )
    if (job.arguments or job.result_shardings) and program.function is None:
        raise CommandError("a factory that lowers its function itself takes no other shardings")
    flops = None if program.jaxpr is None else count_flops(program.jaxpr)
    versions = {name: found for name in _PACKAGES if (found := version_of(name))}
    facts = Facts(
        module_name=module_name(program.lowered),
        results=result_names(program.lowered),
        flops=flops.total if flops else None,
        has_while=flops.has_while if flops else False,
        fingerprint=_fingerprint(program, job, versions) if job.has_fingerprint else "",
        calls=calls,
        plain_arguments=values,
        versions=versions,
        command=program.command,
        **(_places(notes, program) if notes is not None and job.has_shardings else {}),
        decisions=tuple(decisions.noted) if decisions is not None and job.has_shardings else (),
    )
    return program, facts


def _reshard(
    job: Job, notes: Notes, function: Any, arguments: Any, keywords: Any
) -> tuple[Any, Any, Any]:
    """The function and arguments of a factory with the shardings of the job."""
    if job.has_mesh or job.arguments or job.result_shardings:
        arguments = placed_arguments(notes, function, arguments)
    if job.has_mesh:
        enter_mesh(arguments, keywords)
    if not job.arguments and not job.result_shardings:
        return function, arguments, keywords
    arguments, keywords = with_argument_shardings(function, arguments, keywords, job.arguments)
    has_new = bool(job.arguments)
    return rejitted(
        notes, function, arguments, keywords, job.result_shardings, has_new_arguments=has_new
    )


def _places(notes: Notes, program: FactoryProgram) -> dict[str, Any]:
    """The lines where the shardings of a program are written."""
    if program.function is None:
        return {"donated": ()}
    given = program.function, program.arguments, program.keywords
    noted = notes.jit_of(program.function)
    return {
        "argument_lines": argument_lines(notes, *given),
        "result_lines": result_lines(notes, program.function, program.lowered),
        "donated": tuple(name_donated(*given, donated_names(program.lowered))),
        "jit_line": "" if noted is None else noted.line,
        "dead_constraints": () if program.jaxpr is None else dead_constraints(program.jaxpr),
        "placing": () if program.jaxpr is None else placing_functions(program.jaxpr),
        "exchanges": () if program.jaxpr is None else find_exchanges(program.jaxpr),
    }


def _fingerprint(program: FactoryProgram, job: Job, versions: dict[str, str]) -> str:
    """A hash of all that decides what the compiler plans."""
    ours = version_of("hlomem") if job.imports else ""  # the pass may be among them
    rest = [job.target, job.imports, ours, sorted(versions.items())]
    rest += [os.environ.get("XLA_FLAGS", ""), os.environ.get("LIBTPU_INIT_ARGS", "")]
    rest += [sorted(program.compiler_options.items())] if program.compiler_options else []
    rest += [sorted(job.options.items())] if job.options else []
    digest = hashlib.sha256(msgspec.json.encode(rest))
    digest.update(program.lowered.as_text().encode())
    return digest.hexdigest()


def _users_lines(error: BaseException) -> tuple[str, ...]:
    """The end of a traceback, without the calls of ours that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if Path(frame.filename).parent != _OURS]
    lines = "".join(traceback.format_list(theirs[-4:])).splitlines()
    return tuple(lines[-_MAX_TRACE:])


if __name__ == "__main__":
    main()
