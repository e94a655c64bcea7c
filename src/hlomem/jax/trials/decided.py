"""Other decisions of a program, made while it is traced: no source is edited.

In: the decisions that were noted, and what the report knows of the program. Out: `Change`s that
have a constraint ask for something else or left out, take a way between shardings in steps, split
a `shard_map` along another axis, or recompute the body of a loop. What is told is compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.advice.code import DROPPED_PRIMITIVES, DROPPING_POLICY, DROPS_GATHERED
from hlomem.hlo.sharding import parse_spec
from hlomem.jax.trials.changes import Change
from hlomem.report.data.sharding.decision import OtherDecision

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.sharding import Mesh
    from hlomem.report.data.sharding.decision import Decision
    from hlomem.report.data.sharding.finding import ShardingChange

LINK = (
    "https://docs.jax.dev/en/latest/notebooks/Distributed_arrays_and_automatic_parallelization.html"
)
_MAX_LOOPS = 2
_TITLE = "the decision at"


def other_constraints(group: Sequence[Decision], wanted: ShardingChange) -> Iterator[Change]:
    """The constraints of a group as a finding wants them, without an edit of the source."""
    specs: list[tuple[str, ...]] = []
    specs += [(one,) for one in (wanted.constraint, *wanted.alternatives) if one]
    if wanted.through and group:
        specs.append((*wanted.through, group[0].specs[0]))
    if wanted.may_be_left_out:
        specs.append(())
    for some in specs if group else ():
        yield otherwise(group, some, told_as(group, some))


def used_constraints(group: Sequence[Decision]) -> Iterator[Change]:
    """The constraints of a group, whose values nothing reads, read by what follows."""
    if group:
        largest = max(group, key=lambda one: sum(one.sizes))
        put = told_as([largest], largest.specs).partition("\n")[2]
        code = f"what follows reads this, and not x:\n{put}"
        used = [OtherDecision(decision=one, specs=one.specs, is_used=True) for one in group]
        yield otherwise([largest], (), code)._replace(decisions=tuple(used))


def following_constraints(
    decisions: Sequence[Decision], wanted: ShardingChange, axes: Sequence[str], mesh: Mesh
) -> Iterator[Change]:
    """Arguments of a batch along more axes, with the constraints that split as they do now."""
    batch = parse_spec(next(iter(wanted.arguments.values())), mesh)
    if batch is None:
        return
    more = [axis for axis in batch.used if axis.name in axes]
    now = tuple([axis for axis in batch.dimensions[0] if axis not in more])
    others = []
    for one in decisions:
        asked = parse_spec(one.specs[0], mesh) if one.kind == "constraint" else None
        if asked is None or not now or asked.dimensions[:1] != (now,):
            continue
        for axis in more:
            asked = asked if axis in asked.used else asked.with_axis(0, axis)
        others.append(OtherDecision(decision=one, specs=(asked.spec(),)))
    if others:
        code = [f"{one.decision.specs[0]}: {one.specs[0]}" for one in others]
        yield Change(
            "shard",
            "the batch and its constraints",
            "",
            LINK,
            arguments=tuple(wanted.arguments.items()),
            results=tuple(wanted.results.items()),
            decisions=tuple(others),
            code="\n".join(["constraints on what is computed from it:", *dict.fromkeys(code)]),
        )


def stacked_constraints(
    decisions: Sequence[Decision], wanted: ShardingChange, mesh: Mesh
) -> Iterator[Change]:
    """Results that loops stack in another sharding, with the constraints on what is stacked."""
    part = parse_spec(wanted.constraint, mesh)
    others = []
    for one in decisions if part is not None else ():
        is_of_part = one.kind == "constraint" and one.shapes[0] == wanted.dimensions
        asked = parse_spec(one.specs[0], mesh) if is_of_part else None
        if asked is not None and part is not None and set(asked.used) < set(part.used):
            others.append(OtherDecision(decision=one, specs=(wanted.constraint,)))
    lines = dict.fromkeys([one.decision.applied[0].line for one in others if one.decision.applied])
    code = [f"at {line}, instead of {others[0].decision.specs[0]}:" for line in lines]
    code += [f"with_sharding_constraint(x, NamedSharding(mesh, {wanted.constraint}))"] * bool(code)
    yield Change(
        "shard",
        "results that a loop stacks",
        "",
        LINK,
        results=tuple(wanted.results.items()),
        decisions=tuple(others),
        code="\n".join(code),
    )


def told_as(group: Sequence[Decision], specs: Sequence[str]) -> str:
    """The code of a group's other constraints, with the line where it goes."""
    asked = "nothing" if group[0].kind == "dropped" else group[0].specs[0]
    if not specs:
        return f"without the constraint {asked}"
    code = "x"
    for spec in specs:
        code = f"with_sharding_constraint({code}, NamedSharding(mesh, {spec}))"
    return f"instead of {asked}:\n{code}"


def told_of_start(loop: Decision, specs: Sequence[str]) -> str:
    """The code of constraints on what a loop begins with."""
    shapes = zip(loop.shapes, specs, strict=True)
    code = [f"{list(shape)}: {spec}" for shape, spec in shapes if spec]
    title = f"constraints on what the loop at {loop.applied[0].line} begins with:"
    return "\n".join([title, *dict.fromkeys(code)])


def otherwise(
    group: Sequence[Decision], specs: Sequence[str], code: str, dropped: Sequence[str] = ()
) -> Change:
    others = tuple(
        [OtherDecision(decision=one, specs=tuple(specs), dropped=tuple(dropped)) for one in group]
    )
    where = group[0].applied[0].line if group[0].applied else ""
    return Change("shard", f"{_TITLE} {where}", "", LINK, decisions=others, code=code)


def recomputed_loops(
    decisions: Sequence[Decision], group: Sequence[Decision], loops: Sequence[Decision] = ()
) -> Iterator[Change]:
    """The bodies of loops, or of those around gathers, recomputed by a policy that drops these."""
    loops = loops or [one for one in decisions if one.kind == "scan"]
    around = [loop for loop in loops if any(is_inside(one, loop) for one in group)]
    for loop in (around or loops)[-_MAX_LOOPS:]:
        where = loop.applied[0].line if loop.applied else ""
        code = f"the function that the loop at {where} is given:\njax.checkpoint(function,"
        code += " prevent_cse=False"
        policy = f"{code}, policy={DROPS_GATHERED})\n{DROPPING_POLICY.strip()}"
        yield otherwise([loop], (), policy, DROPPED_PRIMITIVES)
        kept = [one for one in decisions if one.kind == "checkpoint"]
        inner = [one for one in kept if is_inside(one, loop) or _is_given(one, loop)]
        if inner:  # what it keeps is recomputed by choice already
            yield otherwise([loop], (), f"{code})")


def is_inside(one: Decision, loop: Decision) -> bool:
    """Whether a decision was made while the body of a loop was traced."""
    outer = [frame.line for frame in loop.applied]
    lines = [frame.line for frame in one.applied]
    return len(lines) > len(outer) > 0 and lines[-len(outer) :] == outer


def _is_given(one: Decision, loop: Decision) -> bool:
    """Whether a checkpoint is the very function that a loop is given: it has no line of its own."""
    return [frame.line for frame in one.applied] == [frame.line for frame in loop.applied]
