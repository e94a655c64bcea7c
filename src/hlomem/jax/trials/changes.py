"""Changes of a user's source that may save memory, proposed from the plan of the program.

In: the memory of a program as XLA planned it, advice on it, and the files of its source. Out:
`Change`s: edits, options of jax.jit, modules to import. Nothing is promised: each is compiled by
`hlomem.jax.trials.trying`.
"""

from __future__ import annotations

import ast
from importlib.util import find_spec
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.advice.code import (
    CHECKPOINT_WITH,
    CHECKPOINT_WITH_IMPORT,
    DOTS,
    NOTHING,
    OFFLOADED,
    OFFLOADED_IMPORT,
    SCAN_IN_CHUNKS,
    WRAPPERS,
)
from hlomem.advice.functions import find_layers, find_loops, is_checkpointed
from hlomem.advice.rules import checkpoint, chunks, donate, offload, order
from hlomem.base.errors import CommandError
from hlomem.jax.compile.call_counts import SEPARATOR
from hlomem.jax.trials.source_edits import Edit, SourceFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hlomem.advice.functions import LayerFunction, Loop
    from hlomem.jax.compile.messages import Facts
    from hlomem.jax.target_kinds import Target
    from hlomem.report.data.advice import Advice, AdviceReport
    from hlomem.report.data.memory import MemoryView
    from hlomem.report.data.sharding.decision import OtherDecision, OtherValue

_MAX_LEVELS = 3
"""Levels of nested functions that are tried."""
_OPTIMIZING = "hlomem.jax.auto"
_MAX_LOOPS = 2
"""Loops whose bodies are tried."""
_LAYERS = "layers"
_CHECKPOINTS = ("checkpoint", "remat", "filter_checkpoint")


class Change(NamedTuple):
    """A change that can be compiled."""

    rule: str
    title: str
    cost: str
    link: str
    edits: tuple[Edit, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    """Other shardings of arguments, by name."""
    has_mesh: bool = False
    """Whether constraints are by P alone, under the mesh of the arguments."""
    results: tuple[tuple[str, str], ...] = ()
    """Other shardings of results, by path."""
    decisions: tuple[OtherDecision, ...] = ()
    """Acts of the program that are done otherwise."""
    value: OtherValue | None = None
    """Another value of an expression of the source."""
    jit: tuple[tuple[str, Any], ...] = ()
    """Options of jax.jit for a function that no line of the source jits."""
    imports: tuple[str, ...] = ()
    code: str = ""
    """Code to write, where there is no edit."""
    argument: str = ""
    sites: frozenset[str] = frozenset()
    """Parts of the program; changes of the same sites exclude one another."""
    effort: float = 0.0
    """The share of the program's time it may add, as a guess for sorting."""
    promise: Advice | None = None
    """The advice with planned bytes, if there is one."""
    at: str = ""
    """`file:line` of what it changes, where that is the line to be told."""
    instead: tuple[tuple[Edit, ...], ...] = ()
    """Other edits, one after the other, if the program cannot be traced with these."""


def propose(
    memory: MemoryView,
    report: AdviceReport,
    target: Target,
    factory: str,
    facts: Facts,
) -> Iterator[Change]:
    """The changes of a factory's program, of which facts tell how functions were called."""
    proposer = _Proposer(memory, target, factory, facts)
    promised = {piece.rule: piece for piece in report.advice if piece.least is not None}
    piece = promised.get("donate")
    if piece is not None:
        yield from proposer.donate(piece)
    for carried in report.advice:
        if carried.rule == "carry":
            yield from proposer.donate_carried(carried, piece)
    if target.machine.changed_after_hook == "nothing":
        yield Change(
            "order",
            order.TITLE,
            order.COST,
            order.LINK,
            imports=(_OPTIMIZING,),
            code=order.HOW,
            sites=frozenset({"order"}),
            promise=promised.get("order"),
        )
    yield from proposer.recompute()
    yield from proposer.loops(report.size)


class _Proposer:
    def __init__(self, memory: MemoryView, target: Target, factory: str, facts: Facts) -> None:
        self._memory = memory
        self._calls = facts.calls
        self._plain = facts.plain_arguments
        self._levels = find_layers(memory, facts.calls)
        self._target = target
        self._files: dict[str, SourceFile | None] = {}
        self._factory = _file_of(factory)

    def _file(self, name: str) -> SourceFile | None:
        if name not in self._files:
            try:
                self._files[name] = SourceFile(name)
            except CommandError:
                self._files[name] = None
        return self._files[name]

    def _own_files(self) -> list[SourceFile]:
        """The factory's file, and those whose functions compute."""
        names = [self._factory] if self._factory else []
        for level in self._levels:
            names += [layer.file for layer in level]
        found = [self._file(name) for name in dict.fromkeys(names)]
        return [file for file in found if file is not None]

    # Donation.

    def donate_carried(self, carried: Advice, donated: Advice | None) -> Iterator[Change]:
        """Caches that a scan reads and writes again: no plan has their results in their memory."""
        known = donated.argument.split(", ") if donated is not None else []
        more = [name for name in carried.argument.split(", ") if name not in known]
        if more:
            module = self._memory.module
            name = "" if module is None else module.name
            yield from self.donate(donate.describe_donation([*known, *more], name))

    def donate(self, piece: Advice) -> Iterator[Change]:
        names = piece.argument.split(", ")
        if not all(name.isidentifier() for name in names):
            return
        edits = [
            file.donate(name, names)
            for file in self._own_files()
            for name in self._jitted_names(file.file)
        ]
        edit = next((edit for edit in edits if edit is not None), None)
        yield Change(
            "donate",
            piece.title,
            piece.cost,
            piece.link,
            edits=() if edit is None else (edit,),
            jit=() if edit is not None else (("donate_argnames", tuple(names)),),
            code=piece.how,
            argument=piece.argument,
            sites=frozenset({"donate"}),
            promise=piece if piece.least is not None else None,
        )

    def _jitted_names(self, file: str) -> list[str]:
        """The qualified names in a file of functions that are called like the program."""
        module = self._memory.module
        last = "" if module is None else module.name.removeprefix("jit_")
        names = [key.partition(SEPARATOR) for key in self._calls]
        return [
            name
            for place, _, name in names
            if realpath(place) == realpath(file) and name.rpartition(".")[2] == last
        ]

    # Recomputation.

    def recompute(self) -> Iterator[Change]:
        if is_checkpointed(self._memory):
            changed = list(other_policies(self._own_files()))
            yield from changed
            if changed:
                return
        for number, layers in enumerate(self._levels[:_MAX_LEVELS]):
            for policy in ("", DOTS) if not number else ("",):
                if (change := self._wrapped(layers, policy)) is not None:
                    yield change

    def _wrapped(self, layers: Sequence[LayerFunction], policy: str) -> Change | None:
        found, tries = _ways_to_wrap(layers, Policy(policy), self._plain, self._file)
        if not found:
            return None
        return Change(
            "checkpoint",
            checkpoint.describe_layers(found, policy),
            "time: at most one more forward pass of them",
            checkpoint.LINK,
            edits=tries[0],
            argument=policy,
            sites=frozenset({_LAYERS}),
            effort=0.15 if policy else 0.33,
            instead=tuple(tries[1:]),
        )

    # Loops.

    def loops(self, size: int) -> Iterator[Change]:
        loops = find_loops(self._memory)
        for loop in chunks.long_loops(loops, size)[:1]:
            yield from self._in_chunks(loop)
        if not self._target.machine.is_host:
            for loop in loops[:1]:
                yield from self._offloaded(loop)

    def _in_chunks(self, loop: Loop) -> Iterator[Change]:
        file = self._file(loop.file)
        for call in file.scans_at(loop.function, loop.line) if file else ():
            assert file is not None
            yield Change(
                "chunks",
                chunks.describe_loop(loop),
                "time: one more forward pass of the loop",
                chunks.LINK,
                edits=(
                    *_needs_jax(file),
                    file.insert_after_imports(f"\n{SCAN_IN_CHUNKS}"),
                    file.call_another(call, "scan_in_chunks"),
                ),
                sites=frozenset({f"{file.file}:{loop.line}"}),
                effort=0.34,
            )

    def _offloaded(self, loop: Loop) -> Iterator[Change]:
        file = self._file(loop.file)
        for call in file.scans_at(loop.function, loop.line) if file else ():
            assert file is not None
            edit = file.wrap_function(call, "offloaded")
            if edit is None:
                continue
            helper = file.insert_after_imports(f"{OFFLOADED_IMPORT}\n{OFFLOADED}")
            yield Change(
                "offload",
                offload.describe_offload(loop),
                "time, if transfers to the host and back are slower than the layers",
                offload.LINK,
                edits=(*_needs_jax(file), helper, edit),
                sites=frozenset({_LAYERS, f"{file.file}:{loop.line}"}),
                effort=0.5,
            )


def other_policies(files: Iterable[SourceFile]) -> Iterator[Change]:
    """Nothing kept where a policy keeps something."""
    for file in files:
        for call in file.calls(_CHECKPOINTS):
            policies = [keyword for keyword in call.keywords if keyword.arg == "policy"]
            if not policies or file.source_of(policies[0].value).endswith(NOTHING):
                continue
            jax, imports = file.name_of("jax")
            edit = file.set_keyword(call, "policy", f"{jax}.checkpoint_policies.{NOTHING}")
            name = ast.unparse(call.func)
            yield Change(
                "checkpoint",
                f"recompute everything in {name} at {Path(file.file).name}:{call.lineno}:"
                f" the policy {NOTHING}",
                "time: what the policy kept is recomputed",
                checkpoint.LINK,
                edits=(edit, *imports),
                argument=NOTHING,
                sites=frozenset({f"{file.file}:{call.lineno}"}),
                effort=0.2,
            )


class Policy(NamedTuple):
    """A policy of `jax.checkpoint`: the name of one of JAX's, or of one's own with its code."""

    name: str
    code: str = ""

    def options(self, file: SourceFile) -> tuple[list[str], list[Edit]]:
        """The keyword of a call, and the edits that make its name known; none without a policy."""
        if self.code:
            return [f"policy={self.name}"], [file.insert_after_imports(self.code)]
        jax, edits = file.name_of("jax")
        words = [f"policy={jax}.checkpoint_policies.{self.name}"] if self.name else []
        return words, edits if words else []


def wrap_layers_by(memory: MemoryView, facts: Facts, policy: Policy) -> Iterator[Change]:
    """The functions that repeat, recomputed by a policy, and those that loops are given."""
    cost = "time: weights are gathered again for the backward pass"
    for layers in find_layers(memory, facts.calls)[:_MAX_LEVELS]:
        found, tries = _ways_to_wrap(layers, policy, facts.plain_arguments, _file_or_none)
        title = checkpoint.describe_layers(found or layers, policy.name)
        if found:
            yield Change(
                "shard",
                title,
                cost,
                checkpoint.LINK,
                edits=tries[0],
                argument=policy.name,
                instead=tuple(tries[1:]),
            )
    for loop in find_loops(memory)[:_MAX_LOOPS]:
        file = _file_or_none(loop.file)
        for call in file.scans_at(loop.function, loop.line) if file else ():
            assert file is not None
            jax, imports = file.name_of("jax")
            options, more = policy.options(file)
            edit = file.wrap_function(call, f"{jax}.checkpoint", options)
            title = f"recompute the body of the loop at {Path(file.file).name}:{call.lineno}"
            if edit is not None:
                edits = (*imports, *more, edit)
                yield Change("shard", title, cost, checkpoint.LINK, edits=edits)


def _ways_to_wrap(
    layers: Iterable[LayerFunction],
    policy: Policy,
    plain_arguments: Mapping[str, Sequence[str]],
    file_of: Callable[[str], SourceFile | None],
) -> tuple[list[LayerFunction], list[tuple[Edit, ...]]]:
    """The layers whose source is known, and the edits that have all of them recomputed."""
    found = []
    ways: list[list[list[Edit]]] = []
    for layer in layers:
        file = file_of(layer.file)
        node = None if file is None else file.function(layer.name, layer.line)
        if file is None or node is None:
            continue
        found.append(layer)
        plain = plain_arguments.get(f"{layer.file}{SEPARATOR}{layer.name}", ())
        ways.append(list(_ways_to_decorate(file, node, layer, policy, plain)))
    tries = [
        tuple(edit for way in ways for edit in way[min(number, len(way) - 1)])
        for number in range(max(map(len, ways), default=0))
    ]
    return found, tries


def _file_or_none(name: str) -> SourceFile | None:
    try:
        return SourceFile(name)
    except CommandError:
        return None


def _needs_jax(file: SourceFile) -> list[Edit]:
    """The import that code of ours needs, if the file has none of that name."""
    name, edits = file.name_of("jax")
    return edits if name == "jax" else [file.insert_after_imports("import jax\n")]


def _ways_to_decorate(
    file: SourceFile, node: Any, layer: LayerFunction, policy: Policy, plain: Sequence[str]
) -> Iterator[list[Edit]]:
    """The edits that have a function recomputed, the likeliest to be traced first."""
    framework = file.framework(layer.name, layer.line)
    numbers = file.positions(node, plain)
    if framework == "linen":
        numbers = [number for number in numbers if number]  # not self
    static = [f"static_argnums=({', '.join(map(str, numbers))},)"] if numbers else []
    wrapper = WRAPPERS[framework]
    yield _decorated(file, node, wrapper, policy, static if framework != "equinox" else [])
    if framework == "nnx":
        yield _decorated(file, node, wrapper, policy, [*static, "graph_updates=False"])
    if framework == "jax" and plain:  # they may be given by name
        quoted = [f'"{name}"' for name in plain]
        options, edits = policy.options(file)
        helper = file.insert_after_imports(f"{CHECKPOINT_WITH_IMPORT}{CHECKPOINT_WITH}")
        call = f"checkpoint_with({', '.join([*quoted, *options])})"
        yield [*_needs_jax(file), *edits, helper, file.decorate(node, call)]
    if static and framework != "equinox":
        yield _decorated(file, node, wrapper, policy, [])


def _decorated(
    file: SourceFile, node: Any, wrapper: tuple[str, str], policy: Policy, options: Sequence[str]
) -> list[Edit]:
    name, edits = file.name_of(wrapper[0])
    call = f"{name}.{wrapper[1]}"
    words, more = policy.options(file)
    edits += more
    options = [*words, *options]
    if options:
        partial, more = file.name_of("functools.partial")
        edits += more
        call = f"{partial}({call}, {', '.join(options)})"
    return [*edits, file.decorate(node, call)]


def _file_of(factory: str) -> str:
    """The file a factory is in; empty if it is not known."""
    place = factory.rpartition(":")[0]
    if place.endswith(".py"):
        return str(Path(place).resolve())
    try:
        spec = find_spec(place)
    except (ImportError, ValueError):
        return ""
    return spec.origin or "" if spec is not None else ""
