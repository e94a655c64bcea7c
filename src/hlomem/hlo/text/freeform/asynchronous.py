"""`slice-start(x)` is short for an async-start that calls a computation with one slice in it.

In: the draft of such an instruction, and the values of all attributes it was given. Out: an async
operation; a start calls a computation that holds the operation itself. Mirrors the async cases of
`HloParserImpl::CreateInstruction`, `CreateAsyncWrappedComputation` and
`UpdateAsyncWrappedComputation` of `hlo/parser/hlo_parser.cc`, and `SetThreadName` of
`hlo/ir/hlo_instructions.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import as_opcode, traits_of
from hlomem.hlo.shape import ElementType, Shape
from hlomem.hlo.shape_inference.elements import compatible, make_shape
from hlomem.hlo.text.freeform.completion import complete
from hlomem.hlo.text.freeform.opcode_attributes import attributes_of
from hlomem.hlo.text.freeform.records import DraftComputation, DraftInstruction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.hlo.text.freeform.values import Value

_COPIED = frozenset(("metadata", "backend_config", "frontend_attributes", "origin", "statistics"))
"""Attributes that the operation and what it wraps both have."""
_STAND_IN = make_shape(ElementType.F32, (1,))


def wrapped_computation(
    draft: DraftInstruction, opcode: str, values: dict[str, Value]
) -> tuple[DraftComputation, str]:
    """The computation that a start wraps, and what is wrong with it; `values` keeps the start's."""
    elements = draft.shape.elements if draft.shape.is_tuple else ()
    is_started = len(elements) > 1 and elements[0].is_tuple
    shapes = list(elements[0].elements) if is_started else []
    result = elements[1] if is_started else draft.shape
    arity = traits_of(as_opcode(opcode)).arity or 0
    shapes += [_STAND_IN] * (arity - len(shapes))
    called, draft.called = draft.called, {}
    callee = next(iter(called.values()), [None])[0] if opcode in ("call", "fusion") else None
    if callee is not None:
        shapes, result = _as_called(shapes, result, callee)
    computation = DraftComputation("async_wrapped", draft.span)
    parameters = [
        DraftInstruction("async_param", shape, "parameter", [], str(number), {}, draft.span)
        for number, shape in enumerate(shapes)
    ]
    own = {name for name in attributes_of(opcode) if name not in attributes_of("async-start")}
    own |= {"output_to_operand_aliasing"} & attributes_of(opcode).keys()
    inner = {name: value for name, value in values.items() if name in own | _COPIED}
    for name in own & values.keys():
        del values[name]
    root = DraftInstruction(opcode, result, opcode, parameters, "", {}, draft.span, called)
    problem = complete(root, inner)
    for parameter in parameters:
        parameter.has_users = True
    computation.instructions, computation.root = [*parameters, root], root
    draft.called = {"calls": [computation]}
    return computation, problem


def _as_called(
    shapes: Sequence[Shape], result: Shape, callee: DraftComputation
) -> tuple[list[Shape], Shape]:
    """Parameters and result as the computation has them that a call or a fusion runs."""
    program = callee.program_shape
    taken = list(program.parameters)
    kept = [
        given if compatible(given, wanted) else wanted
        for given, wanted in zip(shapes, taken, strict=False)
    ]
    kept += [*shapes[len(kept) :], *taken[len(kept) :]]
    return kept, result if compatible(result, program.result) else program.result


def check_stage(draft: DraftInstruction, values: dict[str, Value]) -> str:
    """A contradiction between an update or done and its start; empty if there is none."""
    start = start_of(draft)
    if start is None or start is draft or "calls" not in start.called:
        return ""
    thread = values.get("async_execution_thread")
    started = start.attributes.get("async_execution_thread", '"main"')
    if thread is not None and thread.text != started:
        return f"`{start.name}` runs on thread {started}, not {thread.text}"
    [computation] = start.called["calls"]
    if draft.called.get("calls", [computation]) != [computation]:
        return f"`{start.name}` calls `{computation.name}`"
    return ""


def copy_to_wrapped(draft: DraftInstruction) -> None:
    """Give what an async operation runs the attributes that both have."""
    start = start_of(draft)
    computation = start.called["calls"][0] if start and "calls" in start.called else None
    root = computation.root if computation else None
    copied = {name: text for name, text in draft.attributes.items() if name in _COPIED}
    if root is not None and copied:
        texts = {**root.attributes, **copied}
        order = [name for name in attributes_of(root.opcode) if name in texts]
        root.attributes = {name: texts.pop(name) for name in order} | texts


def producer_of(draft: DraftInstruction) -> DraftInstruction | None:
    """The async operation that another goes on with; None where it is not seen."""
    found: DraftInstruction | None = draft
    while found is not None and found.opcode in ("copy", "opt-barrier"):
        found = found.operands[0] if found.operands else None
    is_async = found is not None and found.opcode in ("async-start", "async-update")
    return found if is_async else None


def start_of(draft: DraftInstruction) -> DraftInstruction | None:
    """The start of the chain an async operation is in; None where it is not seen."""
    found: DraftInstruction | None = draft
    while found is not None and found.opcode != "async-start":
        found = producer_of(found.operands[0]) if found.operands else None
    return found


def set_threads(computations: Sequence[DraftComputation]) -> None:
    """Put the callees of starts, direct or not, on the threads of the starts."""
    for computation in computations:
        for draft in computation.instructions:
            if draft.opcode == "async-start":
                thread = draft.attributes.get("async_execution_thread", '"main"').strip('"')
                _set_thread(draft.called["calls"], thread)


def _set_thread(callees: Sequence[DraftComputation], thread: str) -> None:
    pending, seen = list(callees), set[int]()
    while pending:
        computation = pending.pop()
        if id(computation) in seen:
            continue
        seen.add(id(computation))
        computation.thread = thread
        for draft in computation.instructions:
            pending += draft.callees
