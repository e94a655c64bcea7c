"""Facts that a module's text tells about the past of its computations, each read once.

The rules of `hlomem.history` ask traces and instructions alone. Bodies of fusions stay text.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, overload

from hlomem.base.patterns import lazy_pattern
from hlomem.history import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction

_DERIVED = lazy_pattern(
    r"\.clone|_promoted|\.reduce_window|\.reduce_sub_computation"
    rf"|^{names.TOP_K_COMPARATOR}|^while_(?:cond|body)(?:\.[0-9]+)?$"
)
_MADE_FOR_CALL = lazy_pattern(r"_computation(?:\.[0-9]+)?(?:\.clone.*)?|^parallel_")
_OP_NAME = lazy_pattern(r' metadata=\{(?:op_type="[^"\n]*" )?op_name="([^"\n]+)"')
_CHANNEL = lazy_pattern(r", channel_id=([0-9]{1,18})")


T = TypeVar("T")


class Fact(Generic[T]):
    """A property that is read once; `functools.cached_property` less its lock (Python 3.11)."""

    def __init__(self, read: Callable[[Trace], T]) -> None:
        self.read = read
        self._name = read.__name__
        self.__doc__ = read.__doc__

    @overload
    def __get__(self, trace: None, owner: type[Trace]) -> Fact[T]: ...
    @overload
    def __get__(self, trace: Trace, owner: type[Trace]) -> T: ...
    def __get__(self, trace: Trace | None, owner: type[Trace]) -> Fact[T] | T:
        if trace is None:
            return self
        fact = self.read(trace)
        setattr(trace, self._name, fact)
        return fact


class NameParts(NamedTuple):
    base: str
    number: int
    """-1 where it has none."""


class Application(NamedTuple):
    opcode: str
    site: HloInstruction | None = None
    """None inside a fused body."""
    op_name_in_text: str = ""

    @property
    def op_name(self) -> str:
        """The program's name for it; what rewriters make has none."""
        return self.op_name_in_text if self.site is None else self.site.metadata.op_name


class Trace:
    """The traces that passes left on one computation."""

    def __init__(self, computation: HloComputation, module: Traces, is_fused: bool) -> None:
        self.computation = computation
        self.module = module
        self.name = computation.name
        self.is_fused = is_fused
        """True if it is the body of a fusion."""

    def __repr__(self) -> str:
        return f"<trace of %{self.name}>"

    # Its name.

    @Fact
    def numbered(self) -> tuple[str, int]:
        """The base and the number of its name, without what the partitioner added."""
        return names.split_number(self.name.removesuffix(names.PARTITIONED))

    @property
    def number(self) -> int:
        """The number in its name, also where the partitioner added to that; -1 if there is none."""
        return self.numbered[1]

    @Fact
    def place_in_program(self) -> tuple[int, int]:
        """Its position in the program, if it is one of the program's own."""
        base, number = self.numbered
        return number, _region(base)

    @Fact
    def region(self) -> int:
        """The program's number for it, outer ones before inner; -1 where it has none."""
        name = names.flow_name(self.name).partition(names.CLONE)[0].partition(names.PARTITIONED)[0]
        return place_by_name(name)[1]

    @Fact
    def time_by_regions(self) -> tuple[int, int]:
        """The time at which it was finished, after all it calls, where numbers do not tell."""
        last = self.region
        visited: set[Trace] = set()
        pending = [self]
        while pending:
            trace = pending.pop()
            if trace not in visited:
                visited.add(trace)
                last = max(last, trace.region)
                pending += trace.callees
        return last, -self.region

    @property
    def is_clone(self) -> bool:
        """True if a pass copied another computation."""
        return names.CLONE in self.name

    @Fact
    def original_name(self) -> str:
        """The name of what it was cloned from; empty where it is no clone."""
        return self.name.rpartition(names.CLONE)[0]

    @Fact
    def original(self) -> Trace | None:
        """The computation it was cloned from, if that is still there."""
        return self.module.by_name.get(self.original_name)

    @property
    def is_cloned_again(self) -> bool:
        """True if there is a first clone of it."""
        return self.name + names.CLONE in self.module.by_name

    @Fact
    def is_derived(self) -> bool:
        """True if a pass made it: by its name, or for the top-k that became a custom call.

        Where the program's own computations are numbered, one without a number is not its own, nor
        is the second of the same name.
        """
        base, number = self.numbered
        return (
            _DERIVED.search(self.name) is not None
            or ((number < 0 or base in self.module.by_name) and self.module.entry.number >= 0)
            or self.is_called_by("custom-call")
        )

    # Its callers.

    @property
    def sites(self) -> list[HloInstruction]:
        """The instructions that call it, those inside fused bodies left out."""
        return self.module.call_graph.callsites[self.computation]

    def is_called_by(self, *opcodes: str) -> bool:
        """True if an instruction outside fused bodies calls it that has one of these opcodes."""
        sites = self.module.call_graph.callsites[self.computation]
        for site in sites:  # noqa: SIM110 - this is asked often, and a loop is faster
            if site.opcode in opcodes:
                return True
        return False

    @property
    def caller(self) -> Trace | None:
        """The computation that calls it, the last in the text where several do."""
        caller = self.module.caller_of.get(self.computation)
        return None if caller is None else self.module[caller]

    @Fact
    def application(self) -> Application | None:
        """The instruction that applies it, in a fused body or outside."""
        if self.sites:
            return Application(self.sites[0].opcode, self.sites[0])
        caller = self.caller
        if caller is None or not caller.is_fused:
            return None
        for call in caller.computation.calls():
            if call.opcode != "fusion" and self.computation in call.called_computations:
                match = _OP_NAME.search(call.attribute_text)
                return Application(call.opcode, op_name_in_text=match[1] if match else "")
        return None

    @Fact
    def channel(self) -> int | None:
        """The channel of the collective that applies it; the partitioner counts them."""
        caller = self.caller
        return None if caller is None else caller.channels.get(self.computation)

    @Fact
    def channels(self) -> dict[HloComputation, int]:
        """The channels of its collectives, by what they apply."""
        channels: dict[HloComputation, int] = {}
        for call in self.computation.calls():
            match = _CHANNEL.search(call.attribute_text)
            if match:
                channels |= dict.fromkeys(call.called_computations, int(match[1]))
        return channels

    @Fact
    def site_in_flow(self) -> tuple[Trace, int]:
        """The computation that runs it, in a fused body or outside, and its index in the walk."""
        trace = self
        while trace.caller is not None and trace.caller.is_fused:
            trace = trace.caller
        flow = trace.caller or trace
        return flow, flow.walk.get(trace.computation, -1)

    @Fact
    def walk(self) -> dict[HloComputation, int]:
        """The positions at which it calls others, in XLA's walk through all operands first."""
        post_order = self.module.call_graph.post_order(self.computation)
        return {
            callee: position
            for position, instruction in reversed(list(enumerate(post_order)))
            for callee in instruction.called_computations
        }

    @Fact
    def loop_number(self) -> int:
        """The number of the first part of its state that the condition of its loop reads.

        Passes that change loops rebuild conditions, and parts are numbered as they are made. -1
        where it is no loop's, or the condition reads nothing.
        """
        for site in self.sites:
            if site.opcode == "while":
                states = [called.parameters for called in site.called_computations[1:]]
                users = [user for state in states for user in (state[0].users if state else ())]
                return min(map(names.number_of, users), default=-1)
        return -1

    @Fact
    def is_made_for_call(self) -> bool:
        """True if a call was made together with it."""
        sites = self.sites
        return (
            bool(sites)
            and sites[0].opcode == "call"
            and _MADE_FOR_CALL.search(self.name) is not None
        )

    @Fact
    def is_in_flow(self) -> bool:
        """True if it is a part of the program's own flow."""
        return self.module.call_graph.is_in_flow(self.computation)

    @Fact
    def is_embedded(self) -> bool:
        """True if it runs inside one operation."""
        return self.module.call_graph.is_embedded(self.computation)

    # Its body.

    @Fact
    def callees(self) -> list[Trace]:
        """The computations it calls, each once, in the order of its text."""
        module = self.module
        return [module[callee] for callee in module.call_graph.callees[self.computation]]

    @Fact
    def parameter(self) -> NameParts | None:
        """The name of its first parameter, if it has any."""
        name = self.computation.first_parameter_name
        return NameParts(*names.split_number(name)) if name else None

    @property
    def parameter_number(self) -> int:
        """The number in the name of its first parameter; -1 where there is none."""
        return -1 if self.parameter is None else self.parameter.number

    @Fact
    def converts(self) -> bool:
        """True if it changes the type of a number."""
        return any(inner.opcode == "convert" for inner in self.computation.instructions)


class Traces(dict["HloComputation", Trace]):
    def __init__(self, call_graph: CallGraph) -> None:
        self.call_graph = call_graph
        computations = call_graph.module.computations
        is_fused = call_graph.is_fused
        super().__init__({made: Trace(made, self, is_fused(made)) for made in computations})
        self.by_name = {trace.name: trace for trace in self.values()}
        self.entry = self[call_graph.module.entry]
        self.is_partitioned = self.entry.name.endswith(names.PARTITIONED)

    @cached_property
    def caller_of(self) -> dict[HloComputation, HloComputation]:
        """The caller of each computation, the last in the text where several do."""
        callees = self.call_graph.callees
        computations = self.call_graph.module.computations
        return {callee: caller for caller in computations for callee in callees[caller]}


def place_by_name(name: str) -> tuple[int, int]:
    """By number; where all have the same (`region_0.0`, `region_1.0`), by the one before it."""
    base, number = names.split_number(name.removesuffix(names.PARTITIONED))
    return number, _region(base)


def _region(base: str) -> int:
    region = base.removeprefix("region_")
    return int(region) if region.isdecimal() else -1


def channel_of(collective: HloInstruction) -> int | None:
    """The channel of a collective; the partitioner counts them."""
    match = _CHANNEL.search(collective.attribute_text)
    return int(match[1]) if match else None
