"""The process that probes: it imports a factory's libraries, then forks for every probe."""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hlomem.jax.compile.decisions import (
    Decisions,
    decision_names,
    equations_of,
    spec_text,
)
from hlomem.jax.compile.factories import find_factory, untraced_program
from hlomem.jax.compile.flat_jaxprs import bytes_of
from hlomem.jax.compile.messages import read_message, write_message
from hlomem.jax.compile.shardings import Notes, named_leaves, placed_arguments, result_shardings
from hlomem.jax.probes.instrument import install
from hlomem.jax.probes.kept import Kept, kept_bytes
from hlomem.jax.probes.levers import Levers
from hlomem.jax.probes.messages import Placed, Probe, Survey, Traced
from hlomem.jax.target_kinds import parse_target
from hlomem.report.data.lines import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import NoReturn

    from hlomem.jax.compile.factories import UntracedProgram
    from hlomem.jax.compile.messages import Job

_MAX_PROBLEM = 300


def main() -> None:
    """Do the probes that standard input asks for, a line of them at a time."""
    survey = msgspec.json.decode(sys.stdin.buffer.readline(), type=Survey)
    sys.path[:] = survey.errand.path
    import_module("jax")
    folder = Path(survey.errand.folder)
    for line in sys.stdin.buffer:
        probes = msgspec.json.decode(line, type=list[Probe])
        _fork_all(survey, probes)
        for probe in probes:
            done = None if probe.key else read_message(folder, probe.file, Traced)
            _import_all(done.modules if done else ())


def _import_all(names: Sequence[str]) -> None:
    """Import libraries once for all forks; one that fails does so there, too."""
    for name in names:
        with suppress(Exception):
            import_module(name)


def _fork_all(survey: Survey, probes: Sequence[Probe]) -> None:
    """Each probe in a fork, several at a time; those that end without an answer say so."""
    folder = Path(survey.errand.folder)
    running: dict[int, Probe] = {}
    for probe in probes:
        while len(running) >= survey.workers:
            _await_one(folder, running)
        pid = os.fork()
        if not pid:
            _work(survey, probe)
        running[pid] = probe
        if _has_input_ended():
            os.killpg(0, signal.SIGKILL)
    while running:
        _await_one(folder, running)


def _await_one(folder: Path, running: dict[int, Probe]) -> None:
    pid, _ = os.wait()
    probe = running.pop(pid)
    if not (folder / probe.file).exists():
        write_message(folder, probe.file, Traced(problem="it ended, or took too long"))


def _has_input_ended() -> bool:
    """Whether the parent has gone; it writes nothing while it waits for answers."""
    ready, _, _ = select.select([0], [], [], 0)
    return bool(ready)


def _work(survey: Survey, probe: Probe) -> NoReturn:
    signal.alarm(survey.seconds)
    try:
        traced = _traced(survey.errand.job, probe)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
        traced = Traced(problem=_words(error))
    write_message(Path(survey.errand.folder), probe.file, traced)
    os._exit(0)


def _traced(job: Job, probe: Probe) -> Traced:
    known = set(sys.modules)
    levers = Levers(probe.key, probe.change, probe.site)
    levers.install()
    install()
    for name in job.imports:
        import_module(name)
    notes = Notes()
    notes.install()
    decisions = Decisions(notes.origins)
    decisions.install()
    factory = find_factory(job.factory)
    decisions.install_in_libraries()
    target = parse_target("cpu")
    if probe.key:
        _take_any_rank()
    program = untraced_program(factory, job.settings, target)
    arrays, kept, products, problem = list(_arguments(notes, program)), Kept(0, 0), 0, ""
    try:
        traced = program.trace(target)
        arrays += [*_results(notes, program, traced), *_decided(decisions)]
        kept, products = kept_bytes(traced.jaxpr), _products(traced.jaxpr)
    except Exception as error:  # noqa: BLE001 - arguments are told all the same
        problem = _words(error)
    return Traced(
        arrays=tuple(arrays),
        kept=kept.total,
        kept_as_placed=kept.placed,
        products=products,
        seen=levers.seen,
        is_changed=levers.is_changed,
        problem=problem,
        modules=[name for name in sys.modules if name not in known and _is_library(name)],
    )


def _take_any_rank() -> None:
    """From now on, let arrays have shardings of more dimensions than they have themselves."""
    named = import_module("jax._src.named_sharding").NamedSharding
    named.check_compatible_aval = lambda *_: None


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_MAX_PROBLEM]


def _is_library(name: str) -> bool:
    return is_installed(str(getattr(sys.modules[name], "__file__", "") or ""))


def _arguments(notes: Notes, program: UntracedProgram) -> Iterator[Placed]:
    if program.function is None:
        return
    placed = placed_arguments(notes, program.function, program.arguments)
    for name, leaf in named_leaves(program.function, placed, program.keywords):
        spec = spec_text(getattr(leaf, "sharding", None))
        dimensions = len(getattr(leaf, "shape", ()))
        yield Placed(name=f"argument {name}", spec=spec, size=bytes_of(leaf), dimensions=dimensions)


def _results(notes: Notes, program: UntracedProgram, traced: Any) -> Iterator[Placed]:
    info = getattr(traced, "out_info", None)
    shardings = result_shardings(notes, program.function, info)
    leaves, _ = import_module("jax").tree_util.tree_flatten_with_path(info)
    keystr = import_module("jax").tree_util.keystr
    for number, ((path, leaf), sharding) in enumerate(zip(leaves, shardings, strict=False)):
        spec, size, dimensions = spec_text(sharding), bytes_of(leaf), len(leaf.shape)
        yield Placed(name=f"result{keystr(path)}", spec=spec, size=size, dimensions=dimensions)
        yield Placed(name=f"result {number}", spec=spec, size=0)


def _decided(decisions: Decisions) -> Iterator[Placed]:
    """The decisions, by their lines and in their order."""
    for one, name in decision_names(decisions.noted).items():
        dimensions = len(one.shapes[0]) if len(one.shapes) == 1 else 0
        specs = "; ".join(one.specs)
        yield Placed(name=name, spec=specs, size=sum(one.sizes), dimensions=dimensions)


def _products(jaxpr: Any) -> int:
    """The matrix products and convolutions of a program: fewer are another computation."""
    kinds = ("dot_general", "conv_general_dilated")
    every = equations_of(getattr(jaxpr, "jaxpr", jaxpr))
    return sum(equation.primitive.name in kinds for equation in every)
