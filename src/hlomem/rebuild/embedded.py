"""Names for computations inside operations, by parameter types and creation order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import communicates
from hlomem.rebuild.listing import natural_key
from hlomem.view.computations import CallNest, Computation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hlomem.dump.records import ShapeIndex
    from hlomem.rebuild.shapes import Shapes
    from hlomem.view.drafts import Draft
    from hlomem.view.joined import JoinedDump


def name_embedded(
    embedded: list[Computation],
    drafts: Mapping[str, Draft],
    known: set[str],
    joined: JoinedDump,
    shapes: Shapes,
) -> list[Computation]:
    """Name the computations; returns those that only bodies of fusions call."""
    _name_called(embedded, drafts, joined)
    unclaimed = [computation for computation in embedded if not computation.caller]
    known = known | {computation.name for computation in embedded}
    for callee, caller in sorted(
        _references(drafts, known), key=lambda reference: natural_key(reference[0])
    ):
        computation = next((one for one in unclaimed if _fits(one, caller, joined, shapes)), None)
        if computation is not None:
            computation.name = callee
            unclaimed.remove(computation)
    for number, computation in enumerate(unclaimed):
        computation.name = f"embedded.{number}"
    return unclaimed


def _name_called(
    embedded: list[Computation], drafts: Mapping[str, Draft], joined: JoinedDump
) -> None:
    """Name those that others among them call, by their results."""
    home_of = {name: computation for computation in embedded for name in computation.instructions}
    starts_first = sorted(home_of, key=lambda name: not drafts[name].opcode.endswith("-start"))
    for name in starts_first:
        draft, own = drafts[name], home_of[name]
        is_start = draft.opcode.endswith("-start")
        if not is_start and (draft.opcode != "call" or draft.line is not None):
            continue
        root = _root_of_callee(name, (1,) if is_start else (), joined)
        callee = home_of.get(root or "")
        if root is None or callee is None or callee is own:
            continue
        callee.name = draft.callees[0] if draft.callees else f"{name}.callee"
        callee.caller = name
        draft.callees = [callee.name]
        if is_start:
            draft.runner = draft
            draft.bound = draft.operands
            if draft.line is not None and drafts[root].line is None:
                # `call-start` names the callee of the call that it is short for.
                drafts[root].callees = [
                    name for names in draft.line.callees.values() for name in names
                ][:1]


def _root_of_callee(name: str, index: ShapeIndex, joined: JoinedDump) -> str | None:
    """The root that returns a result to its caller: the position before the caller's."""
    ids = joined.held[name].get(index, ())
    before = None
    for position in joined.used_by_id[ids[0]].positions if len(ids) == 1 else ():
        if position.instruction == name:
            return before
        before = position.instruction
    return None


def _references(drafts: Mapping[str, Draft], known: set[str]) -> Iterator[tuple[str, Draft]]:
    """The distinct names of computations that are called inside an operation."""
    seen = set(known)
    for draft in drafts.values():
        if draft.line is not None and draft.opcode != "fusion" and not draft.is_async:
            for names in draft.line.callees.values():
                for name in names:
                    if name not in seen:
                        seen.add(name)
                        yield name, draft


def _fits(computation: Computation, caller: Draft, joined: JoinedDump, shapes: Shapes) -> bool:
    """Whether a computation takes the types that its caller demands, two of each for a reducer."""
    assert caller.line is not None
    printed = [joined.printed[name] for name in computation.instructions if name in joined.printed]
    numbered = [line for line in printed if line.number is not None]
    numbered.sort(key=lambda line: line.number or 0)
    if caller.opcode == "custom-call":
        return [line.shape for line in numbered] == [shapes[name] for name in caller.operands]
    taken = [line.shape.element_type for line in numbered]
    if caller.opcode == "map":
        return len(taken) == len(caller.operands)
    wanted = [shape.element_type for _, shape in caller.line.shape.leaves()]
    if communicates(caller.opcode):  # it adds whatever number of operands
        return taken == wanted[:1] * 2
    return taken in (wanted * 2, [element_type for element_type in wanted for _ in range(2)])


def embedded_computations(joined: JoinedDump, nest: CallNest) -> list[Computation]:
    """The computations inside reductions, sorts and the like, by id."""

    def rank(name: str) -> tuple[int, int]:
        """By id; instructions without ids directly follow their operands."""
        own = joined.own_id.get(name)
        if own is not None:
            return own, 0
        last, steps = max(map(rank, nest.drafts[name].operands), default=(-1, 0))
        return last, steps + 1

    members: dict[str, list[str]] = {}
    for name in sorted((name for name in joined.held if name not in joined.time_of), key=rank):
        members.setdefault(nest.families.find(name), []).append(name)
    computations: list[list[str]] = []
    taken: set[int] = set()
    for group in reversed(members.values()):
        lines = [joined.printed[name] for name in group if name in joined.printed]
        numbers = {line.number for line in lines if line.number is not None}
        # An unread parameter is a group of its own, before the computation it belongs to.
        if computations and len(group) == len(numbers) == 1 and taken.isdisjoint(numbers):
            computations[-1][:0] = group
            taken |= numbers
        else:
            computations.append(group)
            taken = numbers
    return [Computation("", group) for group in reversed(computations)]
