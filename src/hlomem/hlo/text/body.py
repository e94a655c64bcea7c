"""The body of one computation: rows of text in, linked instructions out.

In: the rows the scanner cut a body into, the shapes seen so far, the computations by name. Out:
the computation, filled. The loop of `_link_rows` runs once per instruction that is read,
so it handles the common form of each thing in line and leaves the rest to functions. No positions
are kept: a `RowProblem` says which part of which row, and the reader cuts the body again.

Where `_linker.c` was built, it cuts and links a body of ASCII text that is plainly as XLA prints it
(`link_natively`). All others are left to the Python here, and so is saying what is wrong.

Mirrors `HloParserImpl::ParseInstructionList` and `CreateInstruction`: operands and callees stand
before their users, names are unique, and without a `ROOT` the last instruction is the root.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from sys import intern

from msgspec import Struct

from hlomem.base.errors import ParseError
from hlomem.base.native import kernel
from hlomem.base.patterns import lazy_pattern
from hlomem.hlo.ir import HloComputation, HloInstruction
from hlomem.hlo.opcodes import CALL_ATTRIBUTE_NAMES, KNOWN_OPCODES, Opcode, as_opcode, traits_of
from hlomem.hlo.text.async_sugar import desugar, is_sugared
from hlomem.hlo.text.attributes import (
    FIRST_INDEX,
    TextProblem,
    compiled,
    parse_integer,
    split_attributes,
)
from hlomem.hlo.text.operands import OperandScope
from hlomem.hlo.text.scanner import InstructionRow, RowPart
from hlomem.hlo.text.shape_parser import INDEX_COMMENT, ShapeTable

CONTROL_PREDECESSORS = "control-predecessors"

_NAMES = {
    name: rf", {name}=(?:%?([A-Za-z0-9_.\-]++)|\{{([^{{}}]*+)\}})(?![^,])"
    for name in (*CALL_ATTRIBUTE_NAMES, CONTROL_PREDECESSORS)
}
_FUSION = lazy_pattern(r", kind=k[A-Za-z]++, calls=%?([A-Za-z0-9_.\-]++)(?![^,])")
_ELEMENT = lazy_pattern(r"[A-Za-z0-9_.\-]#\d")
_MAX_DIGITS = 9


class RowProblem(Exception):  # noqa: N818 - the reader makes a ParseError of it
    """Something wrong in a part of a row."""

    def __init__(self, part: RowPart, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.row: int | None = None
        self.part = part
        self.problem = problem
        self.hint = hint
        self.offsets: tuple[int, int] | None = None  # within the part; all of it where None

    @classmethod
    def of(cls, part: RowPart, cause: TextProblem) -> RowProblem:
        """A problem found in the text of a part."""
        problem = cls(part, cause.problem, cause.hint)
        problem.offsets = (cause.start, cause.end)
        return problem


_Finish = Callable[["_Body", HloInstruction, str], None]
_Linked = tuple[
    list[HloInstruction],
    list[HloInstruction],
    HloInstruction | None,
    list[HloInstruction],
    list["HloComputation"],
]
"""Instructions, parameters, the marked root, those to be finished, callees of fusions."""
_Fact = tuple["Opcode", int | None, bool, _Finish | None]
"""All the loop must know of an opcode: its text (one object for all instructions), its number of
operands, whether it has a payload instead, and the step that finishes it."""


class _Facts(dict[str, _Fact]):
    """Facts by opcode; known opcodes are added when they turn up."""

    def __missing__(self, text: str) -> _Fact:
        opcode = as_opcode(intern(text))  # most comparisons then end with identity
        traits = traits_of(opcode)
        fact = (opcode, traits.arity, traits.has_payload, _find_finish(opcode))
        if opcode in KNOWN_OPCODES:
            self[opcode] = fact
        return fact


_link: Callable[..., _Linked | None] | None = kernel("hlomem.hlo.text._linker", "link")
IS_NATIVE = _link is not None


class _Kind(IntEnum):
    """The kinds of instructions in `_linker.c`."""

    PLAIN = 0
    PAYLOAD = 1
    PARAMETER = 2
    FUSION = 3
    ELEMENT = 4
    UNFINISHED = 5
    UNUSUAL = 6


class _Kinds(dict[str, tuple["Opcode", int, int]]):
    """Facts for `_linker.c` by opcode: its text, its number of operands or -1, its kind there."""

    def __missing__(self, text: str) -> tuple[Opcode, int, int]:
        opcode, arity, has_payload, finish = _FACTS[text]
        kind = _Kind.PAYLOAD if has_payload else _Kind.PLAIN
        if opcode == "parameter":
            kind = _Kind.PARAMETER
        elif finish is not None:
            kind = _KIND_OF_FINISH[finish]
        fact = (opcode, -1 if arity is None else arity, int(kind))
        if opcode in KNOWN_OPCODES:
            self[opcode] = fact
        return fact


class _Body(Struct, eq=False):
    """The state of a computation while its rows are read."""

    scope: OperandScope
    callees: dict[str, HloComputation]
    called: list[HloComputation] = []
    """Other than by fusions."""
    row: int = 0
    """The one being read."""


def link_body(
    computation: HloComputation,
    rows: list[InstructionRow],
    shapes: ShapeTable,
    callees: dict[str, HloComputation],
    *,
    has_control: bool,
) -> list[HloComputation]:
    """Fill a computation from rows, or raise `RowProblem`; returns callees other than fusions'."""
    body = _Body(OperandScope(computation, shapes), callees)
    try:
        root = _link_rows(body, rows, shapes, has_control)
        parameters = _numbered_parameters(body, rows)
    except RowProblem as problem:
        problem.row = body.row
        raise
    except ParseError as error:
        of_shape = RowProblem.of(RowPart.SHAPE, TextProblem.of(error))
        of_shape.row = body.row
        raise of_shape from None
    if len(body.scope.instructions) != len(rows):
        body.scope.name_implied()
    computation.fill(body.scope.instructions, parameters, root)
    return body.called


def link_natively(
    computation: HloComputation,
    place: tuple[str, int, int],
    shapes: ShapeTable,
    *,
    has_control: bool,
) -> list[HloComputation] | None:
    """The same by `_linker.c`, for a body whose place in a text of ASCII characters is given.

    None where it is not as XLA prints it or something is wrong, which `link_body` knows to say.
    """
    assert _link is not None
    callees = computation.module.computation_by_name
    try:
        linked = _link(
            *place, _KINDS, shapes, callees, HloInstruction, computation, computation.index
        )
        if linked is None:
            return None
        instructions, parameters, root, unfinished, fused = linked
        called: list[HloComputation] = []
        if unfinished or has_control:
            body = _Body(OperandScope(computation, shapes, instructions), callees, called)
            _finish_linked(body, unfinished, has_control)
    except (RowProblem, ParseError):
        return None
    numbered = _in_order(parameters)
    if numbered is None:
        return None
    for callee in fused:
        callee.is_fused = True
    computation.fill(instructions, numbered, root or instructions[-1], has_users=True)
    return called


def _finish_linked(body: _Body, unfinished: list[HloInstruction], has_control: bool) -> None:
    """Finish a body whose operands are linked; raises `RowProblem`."""
    for instruction in unfinished:
        finish = _FACTS[instruction.opcode][3]
        assert finish is not None
        finish(body, instruction, instruction.attribute_text)
    for instruction in body.scope.instructions if has_control else ():
        body.scope.by_name[instruction.name] = instruction  # it may name itself, none below
        if instruction.may_have(CONTROL_PREDECESSORS):
            _link_control(body, instruction, instruction.attribute_text)


def _link_rows(
    body: _Body, rows: list[InstructionRow], shapes: ShapeTable, has_control: bool
) -> HloInstruction:
    """Make and link the instructions of all rows; returns the root."""
    scope = body.scope
    computation, instructions, by_name = scope.computation, scope.instructions, scope.by_name
    find = by_name.__getitem__
    root: HloInstruction | None = None
    for body.row, (mark, name, shape_text, opcode_text, inner, attributes) in enumerate(rows):
        opcode, arity, has_payload, finish = _FACTS[opcode_text]

        # Operands: `%a, /*index=1*/%b` and `a, b` in line, every other form in `_resolve`.
        operands: tuple[HloInstruction, ...] = ()
        if inner and not has_payload:
            plain = INDEX_COMMENT.sub("", inner) if "/" in inner else inner
            names = plain[1:].split(", %") if plain[:1] == "%" else plain.split(", ")
            try:
                operands = tuple(map(find, names))
            except KeyError:
                operands = _resolve(scope, inner)
        if arity is not None and len(operands) != arity:
            raise _wrong_count(opcode, arity, len(operands))

        payload = inner if has_payload else ""
        shape, index = shapes[shape_text], len(instructions)
        instruction = HloInstruction(
            name, shape, opcode, operands, payload, attributes, computation, index
        )
        if by_name.setdefault(name, instruction) is not instruction:
            raise RowProblem(RowPart.NAME, f"`{name}` is defined twice in this computation")
        instructions.append(instruction)

        # What only some instructions have.
        if finish is not None:
            finish(body, instruction, attributes)
        if has_control:
            _link_control(body, instruction, attributes)
        if mark:
            if root is not None:
                raise RowProblem(RowPart.ROOT, "a computation has only one ROOT")
            root = instruction
    return root or instructions[-1]


def _resolve(scope: OperandScope, inner: str) -> tuple[HloInstruction, ...]:
    """Operands in any form the grammar has."""
    try:
        return scope.resolve(inner)
    except TextProblem as problem:
        raise RowProblem.of(RowPart.OPERANDS, problem) from None


def _wrong_count(opcode: Opcode, arity: int, count: int) -> RowProblem:
    wanted = "no operands" if arity == 0 else f"{arity} operand{'s'[: arity > 1]}"
    return RowProblem(RowPart.OPERANDS, f"`{opcode}` takes {wanted}, not {count}")


def _numbered_parameters(body: _Body, rows: list[InstructionRow]) -> list[HloInstruction]:
    """The parameters by number, of which none may be missing or given twice."""
    parameters = [
        instruction for instruction in body.scope.instructions if instruction.opcode == "parameter"
    ]
    return _in_order(parameters) or _number_carefully(body, parameters, rows)


def _in_order(parameters: list[HloInstruction]) -> list[HloInstruction] | None:
    """Parameters by number; None where one is missing or given twice, or says its number oddly."""
    by_text = {parameter.payload: parameter for parameter in parameters}
    try:
        return [by_text[str(number)] for number in range(len(parameters))]
    except KeyError:
        return None


def _number_carefully(
    body: _Body, parameters: list[HloInstruction], rows: list[InstructionRow]
) -> list[HloInstruction]:
    """As `_numbered_parameters`, for numbers such as `00`; says what is wrong."""
    row_of = {parts[1]: row for row, parts in enumerate(rows)}
    by_number: dict[int, HloInstruction] = {}
    for parameter in parameters:
        body.row, text = row_of[parameter.name], parameter.payload.strip()
        if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_DIGITS:
            raise RowProblem(RowPart.OPERANDS, "expected the number of the parameter")
        if by_number.setdefault(int(text), parameter) is not parameter:
            raise RowProblem(RowPart.OPERANDS, f"parameter {int(text)} is defined twice")
    for number in range(len(parameters)):
        if number not in by_number:
            body.row = row_of[by_number[max(by_number)].name]
            hint = f"the {len(parameters)} parameters are numbered from 0"
            raise RowProblem(RowPart.OPERANDS, f"there is no parameter {number}", hint)
    return [by_number[number] for number in range(len(parameters))]


def _finish_element(_: _Body, instruction: HloInstruction, attributes: str) -> None:
    """A get-tuple-element takes an element its operand has."""
    match = FIRST_INDEX.match(attributes)
    number = int(match[1]) if match else _read_index(attributes)
    shape = instruction.operands[0].shape
    if not shape.is_tuple or not 0 <= number < len(shape.elements):
        problem = f"`{instruction.operands[0].name}` has no element {number}"
        hint = f"its shape is `{shape.text_without_layout[:80]}`"
        raise _name_problem(attributes, f"index={number}", problem, hint)


def _read_index(attributes: str) -> int:
    try:
        return parse_integer(split_attributes(attributes).get("index", ""))
    except TextProblem as problem:
        raise RowProblem.of(RowPart.ATTRIBUTES, problem) from None


def _finish_fusion(body: _Body, instruction: HloInstruction, attributes: str) -> None:
    """`_link_calls` for the form in which XLA prints a fusion; most calls are one."""
    match = _FUSION.match(attributes)
    callee = body.callees.get(match[1]) if match else None
    if callee is None or callee.index >= body.scope.computation.index:
        _link_calls(body, instruction, attributes)
    else:
        callee.is_fused = True
        instruction.called_computations = (callee,)


def _finish_sugared(body: _Body, instruction: HloInstruction, attributes: str) -> None:
    try:
        split_attributes(attributes)  # which are read below, where their offset is unknown
    except TextProblem as problem:
        raise RowProblem.of(RowPart.ATTRIBUTES, problem) from None
    wrapped = desugar(instruction)
    if wrapped is not None and traits_of(wrapped.opcode).calls:
        _link_calls(body, wrapped, attributes)


def _link_calls(body: _Body, instruction: HloInstruction, attributes: str) -> None:
    """Find the computations an instruction calls; all of them stand above its own."""
    opcode = instruction.opcode
    traits = traits_of(opcode)
    names: list[str] = []
    for attribute, _ in traits.calls:
        found = _names_of(attribute, attributes)
        if not found and traits.needs == "all":
            raise RowProblem(RowPart.OPCODE, f"`{opcode}` needs `{attribute}=`")
        names += found
    if not names and traits.needs != "nothing":
        wanted = " or ".join(f"`{name}=`" for name, _ in traits.calls)
        raise RowProblem(RowPart.OPCODE, f"`{opcode}` needs {wanted}")
    called = tuple([_callee(body, name, attributes) for name in names])
    instruction.called_computations = called
    if opcode == "fusion":
        called[0].is_fused = True
    else:
        body.called += called


def called_names(opcode: Opcode, attributes: str) -> list[str]:
    """The names of the computations an instruction calls; raises `RowProblem`."""
    roles = traits_of(opcode).calls
    if len(roles) == 1:
        return _names_of(roles[0][0], attributes)
    return [name for attribute, _ in roles for name in _names_of(attribute, attributes)]


def _callee(body: _Body, name: str, attributes: str) -> HloComputation:
    callee, caller = body.callees.get(name), body.scope.computation
    if callee is None:
        raise _name_problem(attributes, name, f"computation `{name}` is not defined")
    if callee.index >= caller.index:
        problem = f"computation `{name}` is called before it is defined"
        hint = "callees stand above their callers; no computation may call itself"
        raise _name_problem(attributes, name, problem, hint)
    return callee


def _name_problem(attributes: str, name: str, problem: str, hint: str = "") -> RowProblem:
    """A problem with a name that stands in the attributes."""
    start = max(0, attributes.find(name))
    return RowProblem.of(RowPart.ATTRIBUTES, TextProblem(problem, start, start + len(name), hint))


def _link_control(body: _Body, instruction: HloInstruction, attributes: str) -> None:
    by_name = body.scope.by_name
    names = _names_of(CONTROL_PREDECESSORS, attributes)
    for name in names:
        if name not in by_name and not _may_be_implied(body, name):
            problem = f"control predecessor `{name}` is not defined above"
            raise _name_problem(attributes, name, problem)
    # Of one without a line nothing but the name is known: there is nothing to link to.
    instruction.control_predecessors = tuple([by_name[name] for name in names if name in by_name])


def _may_be_implied(body: _Body, name: str) -> bool:
    """Whether a name can be that of a get-tuple-element for which a text has no line."""
    text = body.scope.computation.module.source.text
    return _ELEMENT.search(text) is not None and f"{name} = " not in text


def _names_of(attribute: str, attributes: str) -> list[str]:
    """The names an attribute lists, `%` removed; empty where it is absent."""
    match = compiled(_NAMES[attribute]).search(attributes)
    if match is not None and attributes.find('"', 0, match.start()) < 0:
        one, several = match.groups()
        return [one] if several is None else _split_names(several)
    if match is None and attribute not in attributes:
        return []
    # A string in front may hold what was found, and odd blanks may hide what was not.
    try:
        value = split_attributes(attributes).get(attribute, "")
    except TextProblem as problem:
        raise RowProblem.of(RowPart.ATTRIBUTES, problem) from None
    return _split_names(value.strip("{}"))


def _split_names(text: str) -> list[str]:
    return [name.strip().removeprefix("%") for name in text.split(",") if name.strip()]


def _find_finish(opcode: Opcode) -> _Finish | None:
    """The step an opcode needs beyond linking its operands; None for most."""
    if opcode == "fusion":
        return _finish_fusion
    if opcode == "get-tuple-element":
        return _finish_element
    if is_sugared(opcode):
        return _finish_sugared
    return _link_calls if traits_of(opcode).calls else None


_KIND_OF_FINISH: dict[_Finish, _Kind] = {
    _finish_fusion: _Kind.FUSION,
    _finish_element: _Kind.ELEMENT,
    _link_calls: _Kind.UNFINISHED,
    _finish_sugared: _Kind.UNUSUAL,
}
_FACTS = _Facts()
_KINDS = _Kinds()
