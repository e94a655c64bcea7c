"""The orders XLA's own schedulers choose, for programs whose text carries none.

Mirrors hlo/transforms/simplifiers/hlo_memory_scheduler.cc. CPU runs breadth first since jaxlib
0.5.1, depth first before (cpu_compiler.cc, `CreateHloSchedule`); GPU takes the best of list, depth
first and post order by the bytes they keep alive, then moves asynchronous starts up and ends down;
its latency-hiding scheduler is not followed. Those of TPU are not public. Breadth first depends on
XLA's lists of users: the text's order is taken, as XLA does when it reads that text.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from hlomem.analysis.post_order import instruction_post_order
from hlomem.hlo.schedule import Schedule
from hlomem.hlo.verifier import verify_module
from hlomem.opt.orders.effects import is_start
from hlomem.opt.orders.flow import FlowBuilder
from hlomem.pipeline import Stages, in_text_order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.machines.options import Options

_GIVEN = frozenset({"parameter", "constant"})
"""Values that are there before anything runs, and so free and take nothing."""
_FIRST = 1 << 63
_PARTITIONED = "_spmd"
"""How computations are named that `SpmdPartitioningVisitor` made, parameters as it came by them."""


class Chosen(NamedTuple):
    """A schedule, and whose it is."""

    schedule: Schedule
    scheduler: str


def choose_schedule(module: HloModule, options: Options) -> Chosen | None:
    """The schedule XLA would give a program on its backend; None where that is not known."""
    verify_module(module)
    stages = Stages(module, Schedule({}), options, order_lists=in_text_order)
    scheduler = options.machine.scheduler
    lists = Lists(stages)
    if scheduler == "in one walk":
        if stages.options.schedules_breadth_first:
            return Chosen(lists.schedule(breadth_first), "breadth first")
        return Chosen(lists.schedule(depth_first), "depth first")
    if scheduler == "least of three":
        return _best_of_three(stages, lists)
    return None


def _best_of_three(stages: Stages, lists: Lists) -> Chosen:
    """`DefaultMemoryScheduler`: of equals the first."""
    candidates = []
    for name, scheduler in _MEMORY_SCHEDULERS.items():
        schedule = lists.schedule(scheduler, as_early_or_late_as_possible)
        candidates.append((_memory_of(stages.rescheduled(schedule)), Chosen(schedule, name)))
    return min(candidates, key=lambda candidate: candidate[0])[1]


def _memory_of(stages: Stages) -> int:
    """`HeapSimulator::MinimumMemoryForModule`: bytes alive at most, arguments and results too."""
    return FlowBuilder(stages, counts_all=True).peaks()[stages.module.entry]


class Lists:
    """A program's lists in XLA's order, and what schedulers count."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._users = stages.order.users
        self._size_of = stages.options.machine.size_of
        self._instructions: dict[HloComputation, list[HloInstruction]] = {}
        for instruction in stages.order.instructions:
            self._instructions.setdefault(instruction.parent, []).append(instruction)
        for computation, instructions in self._instructions.items():
            if not computation.name.endswith(_PARTITIONED):
                instructions.sort(key=_made_first)

    def schedule(
        self,
        scheduler: Callable[[Lists, HloComputation], list[HloInstruction]],
        finish: Callable[[list[HloInstruction]], list[HloInstruction]] = lambda order: order,
    ) -> Schedule:
        """Every computation that runs, by a scheduler."""
        graph = self._stages.call_graph
        return Schedule(
            {
                computation: finish(scheduler(self, computation))
                for computation in self._stages.module.computations
                if graph.is_in_flow(computation)
            }
        )

    def instructions(self, computation: HloComputation) -> list[HloInstruction]:
        """`HloComputation::instructions()`."""
        return self._instructions[computation]

    def users(self, instruction: HloInstruction) -> Sequence[HloInstruction]:
        """`HloInstruction::users()`."""
        return self._users.get(instruction) or instruction.users

    def values(self, instruction: HloInstruction) -> list[HloValue]:
        """The values in all parts of a result, each once (`GetFlattenedValueSet`)."""
        parts = self._stages.dataflow.value_sets[instruction]
        return list(dict.fromkeys(value for part in parts for value in part))

    def made_bytes(self, instruction: HloInstruction) -> int:
        return sum(
            self.size(value)
            for value in self.values(instruction)
            if value.instruction is instruction
        )

    def size(self, value: HloValue) -> int:
        return self._size_of(value.shape)


def _made_first(instruction: HloInstruction) -> tuple[bool, int]:
    """Parameters are made before all else, in their order."""
    if instruction.opcode == "parameter":
        return False, instruction.parameter_number
    return True, 0


def _successors(
    instructions: Sequence[HloInstruction],
) -> Mapping[HloInstruction, list[HloInstruction]]:
    found: dict[HloInstruction, list[HloInstruction]] = {}
    for instruction in instructions:
        for earlier in instruction.control_predecessors:
            found.setdefault(earlier, []).append(instruction)
    return found


def _waits(instruction: HloInstruction) -> int:
    return len(set(instruction.operands)) + len(instruction.control_predecessors)


def breadth_first(lists: Lists, computation: HloComputation) -> list[HloInstruction]:
    """`BFScheduler`: first ready, first run."""
    instructions = lists.instructions(computation)
    successors = _successors(instructions)
    waits = {instruction: _waits(instruction) for instruction in instructions}
    ready = deque(instruction for instruction in instructions if not waits[instruction])
    order = []
    while ready:
        instruction = ready.popleft()
        order.append(instruction)
        for follower in (*lists.users(instruction), *successors.get(instruction, ())):
            waits[follower] -= 1
            if not waits[follower]:
                ready.append(follower)
    return order


def depth_first(lists: Lists, computation: HloComputation) -> list[HloInstruction]:
    """`DFSMemoryScheduler`: operands with most users, then most bytes, above them go first."""
    extra_users: dict[HloInstruction, int] = {}
    total_sizes: dict[HloInstruction, int] = {}
    all_sizes = 0
    for instruction in instruction_post_order(computation):
        if instruction.opcode in _GIVEN:
            extra_users[instruction] = total_sizes[instruction] = 0
            continue
        operands = set(instruction.operands)
        made = lists.made_bytes(instruction)
        all_sizes += made
        users = max(0, len(lists.users(instruction)) - 1) + sum(
            extra_users[operand] for operand in operands
        )
        sizes = made + sum(total_sizes[operand] for operand in operands)
        extra_users[instruction] = min(users, len(computation.instructions))
        total_sizes[instruction] = min(sizes, all_sizes)

    def key(instruction: HloInstruction) -> tuple[int, int, str]:
        return -extra_users[instruction], -total_sizes[instruction], instruction.name

    instructions = lists.instructions(computation)
    successors = _successors(instructions)
    roots = [
        instruction
        for instruction in instructions
        if not instruction.users and instruction not in successors and not instruction.is_root
    ]
    return _depth_first([*roots, computation.root], key)


def _depth_first(
    roots: Sequence[HloInstruction], key: Callable[[HloInstruction], tuple[int, int, str]]
) -> list[HloInstruction]:
    """Everything that roots need, then the root; what comes first by its key is visited first."""
    order: list[HloInstruction] = []
    entered: set[HloInstruction] = set()
    done: set[HloInstruction] = set()
    stack = list(reversed(roots))
    while stack:
        instruction = stack[-1]
        if instruction in entered:
            stack.pop()
            if instruction not in done:
                done.add(instruction)
                order.append(instruction)
            continue
        entered.add(instruction)
        needed = (*instruction.operands, *instruction.control_predecessors)
        stack += sorted({other for other in needed if other not in done}, key=key, reverse=True)
    return order


class _ListScheduler:
    """`ListMemoryScheduler`: of what is ready, whatever frees most beyond what it makes."""

    def __init__(self, lists: Lists, computation: HloComputation) -> None:
        self._lists = lists
        self._instructions = lists.instructions(computation)
        self._used = {
            instruction: list(
                dict.fromkeys(
                    value for operand in instruction.operands for value in lists.values(operand)
                )
            )
            for instruction in self._instructions
        }
        self._uses: dict[HloValue, int] = {}
        for values in (*self._used.values(), lists.values(computation.root)):
            for value in values:
                self._uses[value] = self._uses.get(value, 0) + 1
        self._made = {
            instruction: 0 if instruction.opcode in _GIVEN else lists.made_bytes(instruction)
            for instruction in self._instructions
        }

    def run(self) -> list[HloInstruction]:
        """The order; of those with equal priority the last that got it goes first."""
        successors = _successors(self._instructions)
        waits = {instruction: _waits(instruction) for instruction in self._instructions}
        ready: list[tuple[tuple[int, int], int, HloInstruction]] = []
        entry_of: dict[HloInstruction, tuple[tuple[int, int], int, HloInstruction]] = {}
        count = 0

        def add(instruction: HloInstruction) -> None:
            nonlocal count
            count += 1
            entry_of[instruction] = (self._priority(instruction), count, instruction)
            insort(ready, entry_of[instruction], key=lambda entry: entry[:2])

        for instruction in self._instructions:
            if not waits[instruction]:
                add(instruction)
        order = []
        while ready:
            _, _, best = ready.pop()
            del entry_of[best]
            order.append(best)
            is_freed = self._use(best)
            for follower in (*self._lists.users(best), *successors.get(best, ())):
                waits[follower] -= 1
                if not waits[follower]:
                    add(follower)
            readers = (user for operand in best.operands for user in self._lists.users(operand))
            for user in readers if is_freed else ():
                entry = entry_of.get(user)
                if entry is not None and entry[0] != self._priority(user):
                    ready.remove(entry)
                    add(user)
        return order

    def _use(self, instruction: HloInstruction) -> bool:
        """Count the uses of an instruction; whether a value has one reader left now."""
        is_freed = False
        for value in self._used[instruction]:
            self._uses[value] -= 1
            is_freed |= self._uses[value] == 1
        return is_freed

    def _priority(self, instruction: HloInstruction) -> tuple[int, int]:
        if _is_effective_scalar(instruction):
            return _FIRST, _FIRST
        freed = sum(
            self._lists.size(value)
            for value in self._used[instruction]
            if value.instruction.opcode not in _GIVEN and self._uses[value] == 1
        )
        return freed - self._made[instruction], len(instruction.users)


def _is_effective_scalar(instruction: HloInstruction) -> bool:
    """`ShapeUtil::IsEffectiveScalar`: an array of one element."""
    shape = instruction.shape
    return shape.is_array and all(size == 1 for size in shape.dimensions)


_MEMORY_SCHEDULERS: Mapping[str, Callable[[Lists, HloComputation], list[HloInstruction]]] = {
    "list": lambda lists, computation: _ListScheduler(lists, computation).run(),
    "depth first": depth_first,
    "post order": lambda _, computation: instruction_post_order(computation),
}


def as_early_or_late_as_possible(order: list[HloInstruction]) -> list[HloInstruction]:
    """Asynchronous starts as soon as they may run, ends as late (`PostProcessSchedule` of GPU)."""
    successors = _successors(order)
    early: dict[HloInstruction, None] = {}
    for instruction in order:
        if instruction in early:
            continue
        early[instruction] = None
        for follower in (*instruction.users, *successors.get(instruction, ())):
            needed = (*follower.operands, *follower.control_predecessors)
            if _is_hoisted(follower) and all(earlier in early for earlier in needed):
                early[follower] = None
    late: dict[HloInstruction, None] = {}
    for instruction in reversed(early):
        if instruction in late:
            continue
        late[instruction] = None
        for earlier in (*instruction.operands, *instruction.control_predecessors):
            followers = (*earlier.users, *successors.get(earlier, ()))
            if _is_sunk(earlier) and all(later in late for later in followers):
                late[earlier] = None
    return list(reversed(late))


def _is_hoisted(instruction: HloInstruction) -> bool:
    if instruction.opcode == "custom-call":
        return instruction.attributes.get("schedule") == "SCHEDULE_EARLIEST"
    is_synchronous = '"is_sync":true' in instruction.attribute_text  # `IsGPUSyncCollective`
    return instruction.opcode in _HOISTED and not is_synchronous


def _is_sunk(instruction: HloInstruction) -> bool:
    if instruction.opcode == "custom-call":
        return instruction.attributes.get("schedule") == "SCHEDULE_LATEST"
    is_end = instruction.opcode.endswith("-done") and is_start(instruction.operands[0])
    return is_end and _is_hoisted(instruction.operands[0])


_HOISTED = frozenset(
    {"all-gather-start", "all-reduce-start", "async-start", "collective-permute-start"}
)
