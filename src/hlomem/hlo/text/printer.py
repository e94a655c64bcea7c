"""Modules, computations and instructions to text, in any of the styles XLA has printed them.

In: the model and a `TextStyle`. Out: text. What is printed is the model: names, shapes, opcodes,
operands and callees through their links, the list of attributes; the value of an attribute that
names nothing is the text it was. `format_module(parse(text)) == text` for what XLA printed.

Mirrors `HloModule::Print`, `HloComputation::Print` and
`HloInstruction::PrintWithCanonicalNameMap` of `hlo/ir`.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from hlomem.hlo.ir import MAIN_THREAD, HloComputation, HloInstruction, HloModule
from hlomem.hlo.opcodes import ASYNC_OPCODES, CALL_ATTRIBUTE_NAMES, PAYLOAD_OPCODES, traits_of
from hlomem.hlo.text.async_sugar import ASYNC_THREAD
from hlomem.hlo.text.body import CONTROL_PREDECESSORS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.text.style import TextStyle

_INDEX_COMMENT_EVERY = 5  # `print_operand_index_annotation_interval`
_NAMED_BRACE_ABOVE = 5  # instructions from which on a closing brace carries the name
_NOT_SUGARED = frozenset({"origin", "metadata", "backend_config"})
_NAME_ATTRIBUTES = frozenset(CALL_ATTRIBUTE_NAMES) | {CONTROL_PREDECESSORS}


def format_module(module: HloModule, style: TextStyle | None = None) -> str:
    """The text of a module, in its own style unless another is given."""
    module.open_all()
    style = style or module.style
    header = "".join(f", {name}={value}" for name, value in module.attributes.items())
    pieces = [f"HloModule {module.name}{header}\n", module.stack_frame_tables.format(), "\n"]
    if pieces[1]:
        pieces[1] += "\n"
    sugared = _sugared_computations(module) if style.async_sugar else frozenset()
    for computation in module.computations:
        if computation not in sugared:
            pieces += (format_computation(computation, style), "\n\n")
    return "".join(pieces)


def _sugared_computations(module: HloModule) -> frozenset[HloComputation]:
    """The computations `async_sugar` writes inside the async operation."""
    return frozenset(
        instruction.called_computations[0]
        for instruction in module.iter_instructions()
        if instruction.opcode == "async-start" and _wrapped_instruction(instruction)
    )


def format_computation(computation: HloComputation, style: TextStyle) -> str:
    """The text of a computation, from its name to its closing brace."""
    lines = [_format_head(computation, style)]
    root = computation.root
    for instruction in computation.instructions:
        if instruction is root:
            lines.append(f"  ROOT {format_instruction(instruction, style)}")
        elif not (style.compact_gte and instruction.opcode == "get-tuple-element"):
            lines.append(f"  {format_instruction(instruction, style)}")
    lines.append(_format_tail(computation, style))
    return "\n".join(lines)


def format_instruction(instruction: HloInstruction, style: TextStyle) -> str:
    """The text of an instruction, without indentation and without `ROOT`."""
    name = _format_name(instruction.name, style)
    opcode: str = instruction.opcode
    operands = _format_operands(instruction, style)
    wrapped = _wrapped_instruction(instruction) if style.async_sugar else None
    if wrapped is None:
        attributes = _attribute_texts(instruction, style)
    else:
        opcode = wrapped.opcode + opcode.removeprefix("async")
        attributes = _sugared_attribute_texts(instruction, wrapped, style)
    text = "".join([f", {key}={value}" for key, value in attributes.items()])
    return f"{name} = {instruction.shape.text} {opcode}({operands}){text}"


def format_program_shape(computation: HloComputation) -> str:
    """`(name: shape, ...) -> shape`, without layouts."""
    parameters = ", ".join(
        f"{parameter.name}: {parameter.shape.text_without_layout}"
        for parameter in computation.parameters
    )
    return f"({parameters}) -> {computation.root.shape.text_without_layout}"


def _format_head(computation: HloComputation, style: TextStyle) -> str:
    entry = "ENTRY " if computation.is_entry else ""
    shape = f"{format_program_shape(computation)} " if style.program_shape else ""
    return f"{entry}{_format_name(computation.name, style)} {shape}{{"


def _format_tail(computation: HloComputation, style: TextStyle) -> str:
    tail = "}"
    if computation.execution_thread != MAIN_THREAD:
        tail += f', execution_thread="{computation.execution_thread}"'
    if style.name_after_brace and len(computation.instructions) > _NAMED_BRACE_ABOVE:
        tail += f" // {computation.name}"
    return tail


def _format_name(name: str, style: TextStyle) -> str:
    return f"%{name}" if style.percent else name


def _format_operands(instruction: HloInstruction, style: TextStyle) -> str:
    if instruction.opcode in PAYLOAD_OPCODES:
        return instruction.payload
    pieces: list[str] = []
    for number, operand in enumerate(instruction.operands):
        if number:
            is_fifth = number % _INDEX_COMMENT_EVERY == 0
            pieces.append(f", /*index={number}*/" if is_fifth else ", ")
        if style.operand_shapes:
            pieces.append(f"{operand.shape.text} ")
        pieces.append(_format_operand_name(operand, style))
    return "".join(pieces)


def _format_operand_name(operand: HloInstruction, style: TextStyle) -> str:
    path = ""
    while style.compact_gte and operand.opcode == "get-tuple-element":
        path = f"#{operand.tuple_index}{path}"
        operand = operand.operands[0]
    return _format_name(operand.name, style) + path


def _attribute_texts(instruction: HloInstruction, style: TextStyle) -> dict[str, str]:
    """The attributes with the texts of their values, in order."""
    attributes = instruction.attributes
    if not _NAME_ATTRIBUTES.isdisjoint(attributes):
        attributes = {**attributes, **dict(_name_attributes(instruction, style))}
    if style.proto_order and "backend_config" in attributes:
        from hlomem.hlo.text.proto_order import in_proto_order  # noqa: PLC0415 - large tables

        attributes = {**attributes, "backend_config": in_proto_order(attributes["backend_config"])}
    return attributes


def _wrapped_instruction(instruction: HloInstruction) -> HloInstruction | None:
    """The one instruction run (`HloComputation::CanExpandIntoSingleInstruction`), or None."""
    if instruction.opcode not in ASYNC_OPCODES:
        return None
    computation = instruction.async_wrapped_computation
    if computation is None:
        return None
    root = computation.root
    alone = all(
        instruction is root or instruction.opcode == "parameter"
        for instruction in computation.instructions
    )
    return root if alone else None


def _sugared_attribute_texts(
    instruction: HloInstruction, wrapped: HloInstruction, style: TextStyle
) -> dict[str, str]:
    """Attributes of an async operation (`HloAsyncStartInstruction::PrintExtraAttributesImpl`)."""
    attributes = _attribute_texts(instruction, style)
    attributes.pop("calls", None)
    if instruction.opcode != "async-start":
        return attributes
    inner = {
        name: value
        for name, value in _attribute_texts(wrapped, style).items()
        if name not in _NOT_SUGARED and not (name == "frontend_attributes" and name in attributes)
    }
    thread = attributes.pop(ASYNC_THREAD, None)
    first = {} if thread is None else {ASYNC_THREAD: thread}
    return {**first, **inner, **{k: v for k, v in attributes.items() if k not in inner}}


def _name_attributes(instruction: HloInstruction, style: TextStyle) -> Iterator[tuple[str, str]]:
    """The attributes that name computations or instructions, from the links."""
    attributes = instruction.attributes
    callees = iter(instruction.called_computations)
    for attribute, _ in traits_of(instruction.opcode).calls:
        text = attributes.get(attribute)
        if text is None:
            continue
        is_list = text.startswith("{")
        count = text.count(",") + 1 if text.strip("{} ") else 0
        names = ", ".join(_format_name(callee.name, style) for callee in islice(callees, count))
        yield attribute, f"{{{names}}}" if is_list else names
    if CONTROL_PREDECESSORS in attributes:
        names = ", ".join(_format_name(name, style) for name in _predecessors(instruction, style))
        yield CONTROL_PREDECESSORS, f"{{{names}}}"


def _predecessors(instruction: HloInstruction, style: TextStyle) -> list[str]:
    """The names of control predecessors; a compact text names also those it has no line for."""
    linked = [earlier.name for earlier in instruction.control_predecessors]
    if not style.compact_gte:
        return linked
    printed = [
        name.strip().removeprefix("%")
        for name in instruction.attributes[CONTROL_PREDECESSORS].strip("{}").split(",")
    ]
    return printed if len(printed) > len(linked) else linked
