"""`hlomem.advise`: what would make a program need less memory, and by how much.

In: a program, or a dump of one. Out: advice, the largest saving first. Where a change can be made
in the module (a donation, another layout, a narrower type, another order), it is made, the edited
module is planned and the plan is verified: the saving is the difference between two plans, not an
estimate. What cannot be tried is counted: the bytes it is about, which nothing can exceed.

The rules are those of OpenXLA's page on error E1000 and its guide to memory flags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from hlomem import hlo
from hlomem.advice.memory_order import memory_order
from hlomem.analysis.call_graph import CallGraph
from hlomem.api.plan import Plan, plan
from hlomem.api.replan import replan
from hlomem.base.errors import HlomemError
from hlomem.base.sizes import format_bytes
from hlomem.check.verify import verify
from hlomem.dump.dump import Dump
from hlomem.hlo.rewrite import Rewriter
from hlomem.hlo.shape import ROOT_INDEX
from hlomem.report.data import roles
from hlomem.report.data.advice import CONFIDENCES, Advice, AdviceReport, Confidence, Method
from hlomem.report.data.copies import build_copies
from hlomem.report.data.diff import iter_owners
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import MemoryView, build_memory
from hlomem.report.data.role_shares import build_role_shares
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.check.findings import Finding
    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.hlo.shape import Shape, ShapeIndex
    from hlomem.machines.machine import Machine
    from hlomem.report.data.memory import Buffer, OwnedBytes, Space

E1000 = "https://openxla.org/xla/errors/error_1000"
FLAGS = "https://openxla.org/xla/flags_guidance"
_IN_PLACE = "interference/in-place-fusion"
"""What verifying cannot tell about a fusion whose inside is unknown."""
_WORTH_SAYING = 0.01
"""Share of the memory below which nothing is advised."""
_NARROWER = {"f64": "f32", "c128": "c64", "f32": "bf16"}
_MOST_COPIES = 8
_VIEWS = frozenset({"bitcast", "get-tuple-element", "while", "conditional", "call", "constant"})
"""Opcodes whose results cannot have another layout without their operands."""
_MOST_NAMES = 4
_MOST_TRIALS = 4
_LONGEST_COMPUTATION = 4000
"""Instructions up to which another order is looked for."""


class _Subject(NamedTuple):
    """A program, its plan, and how to plan variations of it."""

    module: HloModule
    memory: MemoryView
    space: Space
    plan: Callable[[HloModule], Plan]
    is_rebuilt: bool = False
    """Whether it was made of a dump, which does not tell what fusions do inside."""
    is_xlas: bool = True
    """Whether its plan reserves what XLA does, where that is known."""
    notes: tuple[str, ...] = ()


class _Trial(NamedTuple):
    """A change that was made in the program, before its worth is known."""

    module: HloModule
    advice: Advice


_Rule: TypeAlias = "Callable[[_Subject], Iterator[_Trial]]"


def advise(
    subject: Dump | HloModule | str,
    *,
    module: HloModule | None = None,
    backend: str = "",
    chip: str = "",
    era: str = "",
    space: str | None = None,
) -> AdviceReport:
    """What would save memory in a program (HLO text or a module) or in the program of a dump.

    `module` is the dump's program where it is at hand; else it is rebuilt from the dump. `backend`
    and `chip` are inferred where they are not given.
    """
    if isinstance(subject, Dump):
        return _advise(_of_dump(subject, module or subject.module, backend, chip, space))
    program = hlo.parse(subject) if isinstance(subject, str) else subject
    return _advise(_of_program(program, backend, chip, era, space))


def _of_program(
    program: HloModule, backend: str, chip: str, era: str, space: str | None
) -> _Subject:
    base = plan(program, backend=backend, chip=chip, era=era, name=program.name)
    machine = base.stages.options.machine

    def plan_module(module: HloModule) -> Plan:
        return _plan_on(machine, module, era=era, name=program.name)

    memory = build_memory(base.dump, program, machine)
    return _Subject(program, memory, find_space(memory, space), plan_module, notes=base.notes)


def _plan_on(
    machine: Machine, module: HloModule, *, era: str, name: str, preset: Dump | None = None
) -> Plan:
    platform, chip = machine.platform, machine.chip_name
    return plan(module, backend=platform, chip=chip, era=era, preset=preset, name=name)


def _of_dump(
    dump: Dump, module: HloModule | None, backend: str, chip: str, space: str | None
) -> _Subject:
    base = replan(dump, backend=backend, chip=chip)
    options = base.stages.options
    preset = None if options.machine.preset_color is None else dump
    era = str(options.release)

    def plan_module(module: HloModule) -> Plan:
        return _plan_on(options.machine, module, era=era, preset=preset, name=dump.name)

    given = [module] if module is not None and module.is_scheduled else []
    plans = [(each, plan_module(each)) for each in (*given, base.stages.module)]
    same = [each for each in plans if _total(each[1].dump) == _total(dump)]
    program, planned = (same or plans)[0]
    notes = [] if program is module else ["the program was rebuilt from the dump"]
    if not same:
        found, wanted = _total(planned.dump), _total(dump)
        notes.append(f"our plan of it reserves {found} bytes, XLA's {wanted}: savings may differ")
    memory = build_memory(planned.dump, module or program)
    return _Subject(
        module=program,
        memory=memory,
        space=find_space(memory, space),
        plan=plan_module,
        is_rebuilt=program is not module,
        is_xlas=bool(same),
        notes=tuple(notes),
    )


def _total(dump: Dump, color: int | None = None) -> int:
    """What a dump reserves, in all or in one memory space."""
    allocations = dump.assignment.allocations if dump.assignment else ()
    return sum(each.size for each in allocations if color in (None, each.color))


def _advise(subject: _Subject) -> AdviceReport:
    space = subject.space
    tried = [advice for rule in _TRIED for advice in _try_all(subject, rule)]
    known = {advice.rule for advice in tried}
    counted = [a for rule in _COUNTED for a in rule(subject) if a.rule not in known]
    least = _WORTH_SAYING * space.size
    tried, counted = (
        sorted(
            (each for each in advice if each.saves > least),
            key=lambda each: (-each.saves, CONFIDENCES.index(each.confidence), each.title),
        )
        for advice in (tried, counted)
    )
    return AdviceReport(
        name=subject.memory.dump.title,
        space=space.name,
        size=space.size,
        advice=(*tried, *counted),
        notes=subject.notes,
    )


def _try_all(subject: _Subject, rule: _Rule) -> Iterator[Advice]:
    """What the changes of a rule save; nothing of one whose program has no right plan."""
    trials = rule(subject)
    while True:
        try:
            trial = next(trials)
            planned, findings = _judge(subject, trial)
        except HlomemError:
            continue
        except StopIteration:
            return
        if not findings:
            yield replace(
                trial.advice,
                saves=subject.space.size - _total(planned.dump, subject.space.color),
                confidence=_confidence(subject, trial.advice),
            )


def _judge(subject: _Subject, trial: _Trial) -> tuple[Plan, list[Finding]]:
    """The plan of a changed program, and what is wrong with it."""
    planned = subject.plan(trial.module)
    verdict = verify(planned.dump, module=planned.stages.module)
    ignored = {_IN_PLACE} if subject.is_rebuilt else set()
    return planned, [each for each in verdict.findings if each.rule not in ignored]


def _confidence(subject: _Subject, advice: Advice) -> Confidence:
    """How sure an advice is, less so where not all is known about the program."""
    if not subject.is_xlas:
        return "low"
    return "medium" if subject.is_rebuilt and advice.confidence == "high" else advice.confidence


# Changes that are tried


def _donate(subject: _Subject) -> Iterator[_Trial]:
    """Arguments whose memory results could take; not those still read when it is overwritten."""
    pairs = list(_donations(subject.module))
    for _ in range(_MOST_TRIALS):
        if not pairs:
            return
        trial = _donation(subject, pairs)
        wrong = _wrong_names(subject, trial)
        if not wrong:
            yield trial
            return
        pairs = [pair for pair in pairs if not wrong & _names(subject.module, *pair)]


def _wrong_names(subject: _Subject, trial: _Trial) -> set[str]:
    """The instructions whose values do not lie right when a change is planned."""
    _, findings = _judge(subject, trial)
    return {value.name.partition("{")[0] for each in findings for value in each.values}


def _names(module: HloModule, index: ShapeIndex, parameter: HloInstruction) -> set[str]:
    """The instructions that stand for an argument and a result."""
    root = module.entry.root
    result = root.operands[index[0]] if index and root.opcode == "tuple" else root
    return {parameter.name, result.name}


def _donations(module: HloModule) -> Iterator[tuple[ShapeIndex, HloInstruction]]:
    """Results and the arguments they could take, matched in order as JAX does."""
    shape = module.entry.root.shape
    results = {ROOT_INDEX: shape}
    if shape.is_tuple:
        results = {ROOT_INDEX.child(n): part for n, part in enumerate(shape.elements)}
    taken = {each.output_index for each in module.input_output_alias}
    donated = {each.parameter_number for each in module.input_output_alias}
    free = {index: shape for index, shape in results.items() if index not in taken}
    for parameter in module.entry.parameters:
        if parameter.parameter_number in donated or not parameter.shape.is_array:
            continue
        for index, shape in free.items():
            if shape == parameter.shape:
                del free[index]
                yield index, parameter
                break


def _donation(subject: _Subject, pairs: list[tuple[ShapeIndex, HloInstruction]]) -> _Trial:
    names = [_argument_name(parameter) for _, parameter in pairs]
    rewriter = Rewriter(subject.module)
    for index, parameter in pairs:
        _drop_saving_copy(rewriter, parameter)
        rewriter.donate(parameter.parameter_number, index)
    return _Trial(
        rewriter.finish(),
        Advice(
            rule="donate",
            title=f"donate {plural(len(names), 'argument')}: {_listed(names)}",
            saves=0,
            method="re-planned",
            confidence="high",
            cost="the caller must not use the arguments afterwards",
            how="jax.jit(f, donate_argnames=…)",
            link=E1000,
        ),
    )


def _drop_saving_copy(rewriter: Rewriter, parameter: HloInstruction) -> None:
    """Drop the copy that only saves an argument from being overwritten."""
    match parameter.users:
        case [copy] if copy.opcode == "copy" and copy.shape == parameter.shape:
            if not copy.is_root:
                rewriter.drop_copy(copy)


def _argument_name(parameter: HloInstruction) -> str:
    return parameter.metadata.op_name or f"argument {parameter.parameter_number}"


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _drop_copies(subject: _Subject) -> Iterator[_Trial]:
    """Copies to another layout, where it could have been that layout from the beginning."""
    found = build_copies(subject.memory, subject.space)
    wanted = [row.name for row in found.rows if row.cause == "layout"][:_MOST_COPIES]
    for name in wanted:
        copy = subject.module.entry.find(name)
        if copy is not None and copy.opcode == "copy" and copy.operands[0].users == [copy]:
            yield from _drop_copy(copy)


def _drop_copy(copy: HloInstruction) -> Iterator[_Trial]:
    [source] = copy.operands
    own, other = (format_layout(each.shape) for each in (source, copy))
    if source.opcode == "parameter":
        title = f"give {_argument_name(source)} in layout {other}"
        yield _without_copy(copy, _layout_advice(title, "in_shardings"), takes_layout_of_copy=True)
        return
    if copy.is_root or copy.users == [copy.parent.root]:
        title = f"take the result that {copy.name} copies in layout {own}"
        advice = _layout_advice(title, "out_shardings")
        yield _without_copy(copy, advice, takes_layout_of_copy=False)
    if source.opcode not in _VIEWS:
        title = f"compute {source.name} in layout {other}, so that {copy.name} is not needed"
        yield _without_copy(copy, _layout_advice(title, ""), takes_layout_of_copy=True)


def _without_copy(copy: HloInstruction, advice: Advice, *, takes_layout_of_copy: bool) -> _Trial:
    rewriter = Rewriter(copy.parent.module)
    rewriter.drop_copy(copy, takes_layout_of_copy=takes_layout_of_copy)
    return _Trial(rewriter.finish(), advice)


def format_layout(shape: Shape) -> str:
    """A shape's order of dimensions, from minor to major."""
    order = shape.layout.minor_to_major if shape.layout else ()
    return f"{{{','.join(map(str, order))}}}"


def _layout_advice(title: str, option: str) -> Advice:
    how = f"jax.jit(f, {option}=Format(Layout(…), …)), of jax.experimental.layout"
    return Advice(
        rule="layout",
        title=title,
        saves=0,
        method="re-planned",
        confidence="medium" if option else "low",
        cost="whoever else uses it must use that layout, or copies; speed, if it is the worse one",
        how=how if option else "with_layout_constraint(x, Layout(…)), of jax.experimental.layout",
        link=E1000,
    )


def _narrow(subject: _Subject) -> Iterator[_Trial]:
    """The widest type of the program, halved."""
    for old in _widest(subject.module):
        rewriter = Rewriter(subject.module)
        rewriter.change_element_type(old, _NARROWER[old])
        yield _Trial(rewriter.finish(), _narrow_advice(old, "re-planned", 0))


def _widest(module: HloModule) -> list[str]:
    shapes = {shape for each in module.computations for shape, _ in each.outline()}
    types = {leaf.element_type.text for shape in shapes for _, leaf in shape.leaves()}
    return [old for old in _NARROWER if old in types][:1]


def _narrow_advice(old: str, method: Method, saves: int) -> Advice:
    new = _NARROWER[old]
    return Advice(
        rule="narrow",
        title=f"compute in {new} instead of {old}",
        saves=saves,
        method=method,
        confidence="low",
        cost="precision; and XLA may widen where it has no instruction for it",
        how=f"cast arguments with .astype({_NUMPY[new]}), or mixed precision",
        link=E1000,
    )


_NUMPY = {"f32": "jnp.float32", "bf16": "jnp.bfloat16", "c64": "jnp.complex64"}


def _reorder(subject: _Subject) -> Iterator[_Trial]:
    """Every computation of the program's flow in an order made for memory."""
    module, machine = subject.module, subject.memory.machine
    graph = CallGraph(module)
    flow = [
        each
        for each in module.computations
        if graph.is_in_flow(each) and each.instruction_count <= _LONGEST_COMPUTATION
    ]
    rewriter = Rewriter(module)
    for computation in flow:
        rewriter.reorder(computation, memory_order(computation, machine.size_of))
    yield _Trial(
        rewriter.finish(),
        Advice(
            rule="order",
            title="run the instructions in an order made for memory",
            saves=0,
            method="re-planned",
            confidence="low",
            cost="less overlap of computation and communication; XLA's own order will differ",
            how=machine.scheduler_flag,
            link=FLAGS,
        ),
    )


_TRIED: tuple[_Rule, ...] = (
    _donate,
    _drop_copies,
    _narrow,
    _reorder,
)


# What is only counted


def _count_roles(subject: _Subject) -> Iterator[Advice]:
    """Memory that holds nothing of the program's own making."""
    sizes = {
        share.role: share.size for share in build_role_shares(subject.memory, subject.space.color)
    }
    for rule, (role, title, cost, how) in _ROLE_ADVICE.items():
        if size := sizes.get(role, 0):
            yield _counted(rule, title.format(size=format_bytes(size)), size, cost, how)


def _counted(rule: str, title: str, size: int, cost: str, how: str) -> Advice:
    return Advice(
        rule=rule,
        title=title,
        saves=size,
        method="counted",
        confidence="low",
        cost=cost,
        how=how,
        link=E1000,
    )


_ROLE_ADVICE: dict[str, tuple[str, str, str, str]] = {
    "padding": (
        roles.PADDING,
        "choose dimensions that fill their tiles: {size} hold nothing",
        "changes the model, or needs masks",
        "hlomem padding names the dimensions",
    ),
    "constants": (
        roles.CONSTANTS,
        "pass large constants as arguments: {size} are part of the program",
        "none; they then can be shared between programs, and donated",
        "an argument instead of a closed-over array",
    ),
    "holes": (
        roles.HOLES,
        "a better packing could fill {size} of holes",
        "nothing a program can do; sizes that repeat pack better",
        "hlomem holes names who lies around them",
    ),
}


def _count_kept(subject: _Subject) -> Iterator[Advice]:
    """What the forward pass computes and the backward pass reads."""
    held = _hold(subject)
    size = sum(size for buffer, size in held if _is_kept(buffer))
    title = f"recompute activations in the backward pass: {format_bytes(size)} are kept for it"
    cost = "time: up to one more forward pass"
    yield _counted("checkpoint", title, size, cost, "jax.checkpoint around each layer")


def _is_kept(buffer: Buffer) -> bool:
    operation = buffer.op_name or ""
    is_forward = "jvp(" in operation and "transpose(jvp(" not in operation
    return is_forward and buffer.role in {roles.ACTIVATIONS, roles.STACKED}


def _hold(subject: _Subject) -> Iterator[OwnedBytes]:
    """Who holds the memory of the space."""
    color = subject.space.color
    return iter_owners(subject.memory, color, subject.memory.fullest_step(color))


def _count_narrow(subject: _Subject) -> Iterator[Advice]:
    """Half of what arrays of the widest type hold, where the places of some are given."""
    for old in _widest(subject.module):
        size = sum(n for buffer, n in _hold(subject) if buffer.shape.startswith(f"{old}["))
        yield _narrow_advice(old, "counted", size // 2)


_COUNTED: tuple[Callable[[_Subject], Iterator[Advice]], ...] = (
    _count_kept,
    _count_roles,
    _count_narrow,
)
"""What a rule that was tried found is not counted again."""
