"""A checker of edited programs: the given one up to order and pure instructions that run twice.

Instructions of one class have the same opcode, shape, attributes and bodies, and operands of the
same classes. All given ones must be there, in their classes; new ones are of a class of a pure one,
read no memory that the next value has been written to, and share memory with new ones at most.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, TypeAlias

from hlomem.check.flow import trace
from hlomem.opt.checks.offsets import CONFIG, SLICES
from hlomem.opt.checks.order import (
    STRICT,
    find_effect_problems,
    find_families,
    has_effect,
    run_times,
    touching,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hlomem.check.flow import Flow, Position
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.opt.checks.order import Allowed

Key: TypeAlias = tuple[object, ...]

_ONCE = """
    add-dependency after-all all-gather all-gather-done all-gather-start all-reduce all-reduce-done
    all-reduce-start all-to-all async-done async-start async-update call collective-broadcast
    collective-permute collective-permute-done collective-permute-start collective-reduce
    conditional copy-done copy-start custom-call domain infeed opt-barrier outfeed parameter
    partition-id ragged-all-to-all recv recv-done reduce-scatter replica-id rng rng-bit-generator
    rng-get-and-update-state send send-done tuple while
"""
_NEVER_TWICE = frozenset(_ONCE.split())
_CALLS_OF_LIBRARIES = """
    __cublas$gemm __cublas$lt$matmul __cublas$lt$matmul$f8 __cudnn$convBackwardFilter
    __cudnn$convBackwardInput __cudnn$convBiasActivationForward __cudnn$convForward
    __cudnn$convForwardGraph __cudnn$norm __gpu$xla.gpu.triton
"""
_PURE_CALLS = frozenset(f'"{target}"' for target in _CALLS_OF_LIBRARIES.split())
"""Targets of calls that write a result and a workspace, and nothing else (`cublas_cudnn.cc`)."""
_NOT_PURE = ("custom_call_has_side_effect", "output_to_operand_aliasing")
_SAME_BY_OPERANDS = ("parameter", "tuple")
_NAMING = """
    body branch_computations called_computations calls condition control-predecessors
    false_computation metadata scatter select to_apply true_computation
"""
NAMES = frozenset(_NAMING.split())
"""Attributes that name what is compared otherwise, or where it comes from."""
_NAMES_OF_SLICE = NAMES | {CONFIG}
HEADER = ("input_output_alias", "buffer_donor", "entry_computation_layout", "is_scheduled")
ELIDED = "{...}"
OF_CLONE = re.compile(r"\.(?:remat|clone|piece)\d*(?:\.\d+)?$")


def find_edit_problems(given: HloModule, edited: HloModule, allowed: Allowed = STRICT) -> list[str]:
    problems = [*check_header(given, edited), *_compare(given, edited)]
    problems = problems or list(_check_sequence(edited))
    problems = problems or find_effect_problems(given, edited, allowed)
    return problems or list(_check_readers(given, edited))


def check_header(given: HloModule, edited: HloModule) -> Iterator[str]:
    """Attributes of the module that are others now."""
    for name in HEADER:
        if given.attributes.get(name) != edited.attributes.get(name):
            yield f"the header has a different {name}"


# What is computed.


class Classes:
    """The classes of a pair of modules' instructions."""

    def __init__(self, *, of_values: bool = False, by_indices: bool = False) -> None:
        """With `of_values` a copy is what it is of, and what is waited for does not count.

        With `by_indices` slices are where these say, whatever else says so (`offsets.py`).
        """
        self._of_values = of_values
        self._by_indices = by_indices
        self._number_of: dict[Key, int] = {}
        self._of: dict[HloInstruction, int] = {}
        self._bodies: dict[HloComputation, int] = {}
        self._is_pure: dict[HloInstruction, bool] = {}

    def of(self, instruction: HloInstruction) -> int:
        """The class of an instruction whose operands have theirs."""
        known = self._of.get(instruction)
        if known is None and self._of_values and _is_same(instruction):
            known = self._of[instruction] = self.of(instruction.operands[0])
        if known is None:
            number = self._number_of.setdefault(self._key(instruction), len(self._number_of))
            known = self._of[instruction] = number
        return known

    def _key(self, instruction: HloInstruction) -> Key:
        return (
            instruction.name if self._is_unique(instruction) else "",
            instruction.shape.text,
            *text_of(instruction, by_indices=self._by_indices),
            tuple([self.of(operand) for operand in instruction.operands]),
            tuple([self.of_body(callee) for callee in instruction.called_computations]),
            ()
            if self._of_values
            else tuple([self.of(earlier) for earlier in instruction.control_predecessors]),
        )

    def _is_unique(self, instruction: HloInstruction) -> bool:
        """Whether no other instruction is like it, since more than its operands counts."""
        if instruction.opcode in _SAME_BY_OPERANDS or instruction.parent.is_fused:
            return False
        return not self.is_pure(instruction)

    def is_pure(self, instruction: HloInstruction) -> bool:
        """Whether it may run twice."""
        known = self._is_pure.get(instruction)
        if known is None:
            known = is_pure(instruction, may_wait=self._of_values)
            self._is_pure[instruction] = known
        return known

    def known_body(self, computation: HloComputation) -> int | None:
        """The class of a body that was asked for."""
        return self._bodies.get(computation)

    def of_body(self, computation: HloComputation) -> int:
        """The class of what a computation computes from its parameters, and lets be seen."""
        known = self._bodies.get(computation)
        if known is None:
            classes = {one: self.of(one) for one in computation.instructions}
            known = classes[computation.root]
            if seen := tuple([classes[one] for one in classes if has_effect(one, frozenset())]):
                known = self._number_of.setdefault((known, seen), len(self._number_of))
            self._bodies[computation] = known
        return known


def _is_same(instruction: HloInstruction) -> bool:
    """Whether a copy has the shape and layout of what it is of; a barrier hands on what it is."""
    if instruction.opcode not in ("copy", "opt-barrier"):
        return False
    return instruction.shape.text == instruction.operands[0].shape.text


def text_of(instruction: HloInstruction, *, by_indices: bool = False) -> Key:
    """All that the text says of an instruction, but shape, operands and what it calls."""
    attributes = instruction.attributes
    unsaid = _NAMES_OF_SLICE if by_indices and instruction.opcode in SLICES else NAMES
    own = tuple(sorted((key, attributes[key]) for key in attributes if key not in unsaid))
    is_elided = instruction.payload.strip().endswith(ELIDED)  # not told from others by the text
    name = OF_CLONE.sub("", instruction.name) if is_elided else ""
    return instruction.opcode, own, instruction.payload, name


def is_pure(instruction: HloInstruction, *, may_wait: bool = False) -> bool:
    """Whether equal operands give equal results, and nothing happens but, if allowed, waiting."""
    if instruction.opcode in _NEVER_TWICE and not _is_pure_call(instruction):
        return False
    if instruction.control_predecessors and not may_wait:
        return False
    return all(
        inside.opcode in _SAME_BY_OPERANDS or is_pure(inside, may_wait=may_wait)
        for callee in instruction.called_computations
        for inside in callee.instructions
    )


def _is_pure_call(instruction: HloInstruction) -> bool:
    attributes = instruction.attributes
    if attributes.get("custom_call_target") not in _PURE_CALLS:
        return False
    return not any(name in attributes for name in _NOT_PURE)


def _compare(given: HloModule, edited: HloModule) -> Iterator[str]:
    """All instructions that run, computation by computation."""
    classes = Classes()
    names = {computation.name: computation for computation in edited.outer_computations}
    missing = [one.name for one in given.outer_computations if one.name not in names]
    if missing or len(names) != len(given.outer_computations):
        yield f"other computations run: {', '.join(missing) or 'some are new'}"
        return
    for computation in given.outer_computations:
        yield from _compare_bodies(computation, names[computation.name], classes)


def _compare_bodies(old: HloComputation, new: HloComputation, classes: Classes) -> Iterator[str]:
    class_of = {instruction.name: classes.of(instruction) for instruction in old.instructions}
    pure = {class_of[one.name] for one in old.instructions if classes.is_pure(one)}
    seen = set()
    for instruction in new.instructions:
        name = instruction.name
        seen.add(name)
        if name in class_of:
            if classes.of(instruction) != class_of[name]:
                yield f"{name} does not compute what it did"
        elif not old.is_entry:
            yield f"{name} is new in {old.name}, which is not the entry"
        elif not is_pure(instruction):
            yield f"{name} is new, and {instruction.opcode} may not run twice"
        elif classes.of(instruction) not in pure:
            yield f"{name} is new, and computes what nothing in the given program does"
    for name in class_of.keys() - seen:
        yield f"{name} is missing"
    if old.root.name != new.root.name:
        yield f"{old.name} returns {new.root.name}, not {old.root.name}"


# Who reads what too early, or too late.


def _check_sequence(edited: HloModule) -> Iterator[str]:
    """Every instruction runs after those that it reads, and waits for, now."""
    for computation in edited.outer_computations:
        place_of = {one: place for place, one in enumerate(computation.instructions)}
        for instruction, place in place_of.items():
            for earlier in (*instruction.operands, *instruction.control_predecessors):
                if place_of[earlier] >= place:
                    yield f"{instruction.name} needs {earlier.name}, which runs later"


def _check_readers(given: HloModule, edited: HloModule) -> Iterator[str]:
    """Readers of a value come before the next value in that memory; no new value is in it."""
    before, flow = trace(given), trace(edited)
    was, now = run_times(given, {}), run_times(edited, {})
    for family in find_families(edited, flow):
        new = [name for name, _ in family if name not in was and name in now]
        if new and len(new) == len(family):
            yield from _check_new(family, flow, now)
            continue
        if new:
            yield f"{new[0]} is new, and must share the memory of another value"
            continue
        name_at = {was[name]: name for name, _ in family if name in was}
        written = sorted(name_at)
        for value in family:
            if value[0] not in was:
                continue
            old = set(touching(before, value))
            for name in touching(flow, value):
                known = was[name] if name in old and name in was else was[value[0]]
                following = bisect_right(written, known)
                writer = name_at[written[following]] if following < len(written) else ""
                if writer and name in now and now[name] > now[writer]:
                    yield f"{name} reads {value[0]}, which {writer} has written over by then"


def _check_new(family: set[Position], flow: Flow, now: Mapping[str, int]) -> Iterator[str]:
    """Readers of new values that share memory come before the next of these is written."""
    name_at = {now[name]: name for name, _ in family}
    written = sorted(name_at)
    for value in family:
        following = bisect_right(written, now[value[0]])
        writer = name_at[written[following]] if following < len(written) else ""
        for name in touching(flow, value):
            if writer and now[name] > now[writer]:
                yield f"{name} reads {value[0]}, which {writer} has written over by then"
