"""The bodies of computations: instructions, and what may be nested in them.

In: tokens, at the brace that opens a body, and the computations before it. Out: drafts, in
the order of XLA's lists. An operand may be an instruction itself, `add(max(x, y), z)`; an attribute
may hold a whole computation, `to_apply={ … }`; a shape may be left out where it follows from the
operands. Mirrors `ParseInstructionList`, `ParseInstructionRhs`, `CreateInstruction`,
`ParseOperands` and `ParseHloComputation` of `hlo/parser/hlo_parser.cc`.

Each function that may come to itself again is a generator: it yields what it needs read and is sent
the result, and `run` keeps those that wait in a list. So nothing recurses, however deep a text
nests. Differences: opcodes and attributes that are not known are kept, as in text XLA prints.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct

from hlomem.base.source import Span
from hlomem.hlo.opcodes import (
    ASYNC_OPCODES,
    CALL_ATTRIBUTE_NAMES,
    KNOWN_OPCODES,
    PAYLOAD_OPCODES,
    as_opcode,
    traits_of,
)
from hlomem.hlo.shape import ElementType, Shape
from hlomem.hlo.shape_inference import Case, InferenceError, infer_shape
from hlomem.hlo.shape_inference.elements import compatible
from hlomem.hlo.text.async_sugar import STAGES
from hlomem.hlo.text.body import CONTROL_PREDECESSORS
from hlomem.hlo.text.freeform.asynchronous import (
    check_stage,
    copy_to_wrapped,
    start_of,
    wrapped_computation,
)
from hlomem.hlo.text.freeform.completion import complete
from hlomem.hlo.text.freeform.literals import read_literal
from hlomem.hlo.text.freeform.names import UniqueNames, sanitized
from hlomem.hlo.text.freeform.opcode_attributes import attributes_of, is_known
from hlomem.hlo.text.freeform.records import DraftComputation, DraftInstruction
from hlomem.hlo.text.freeform.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hlomem.hlo.text.freeform.tokens import Tokens

    Steps = Generator[Any, Any, Any]

_TO_BE_INFERRED = Shape(ElementType.TOKEN)
MAX_PARTS = 1 << 20
MAX_DEPTH = 8192  # `HloParserOptions::kDefaultMaxRecursionDepth`
_NAMED = frozenset((*CALL_ATTRIBUTE_NAMES, CONTROL_PREDECESSORS))
_LISTED = frozenset(("branch_computations", "called_computations"))
_NOT_WRAPPED = frozenset(("all-gather", "all-reduce", "collective-permute", "copy", "recv", "send"))
"""Opcodes that have stages of their own, and none more."""
_OPCODE = re.compile(r"[a-z][\w\-]*+", re.ASCII)
_FORM = "an instruction reads `name = shape opcode(operands), attribute=value`"


class Scope(Struct, eq=False):
    """The instructions of one computation that may be operands of the next one."""

    is_loose: bool = False
    """Whether undefined operands are parameters: for a text of one instruction."""
    instructions: list[DraftInstruction] = []
    by_name: dict[str, DraftInstruction] = {}
    defined: int = 0

    def define(self, name: str, shape: Shape, span: Span) -> DraftInstruction:
        """A parameter for an undefined operand, with the next number."""
        number = self.defined
        self.defined += 1
        name = name or f"_{number}"
        parameter = DraftInstruction(name, shape, "parameter", [], str(number), {}, span)
        self.by_name[name] = parameter
        self.instructions.append(parameter)
        return parameter


class BodyReader:
    """Reads bodies; knows the computations that were read before."""

    def __init__(
        self, tokens: Tokens, find: Callable[[str], DraftComputation | None] | None = None
    ) -> None:
        """`find` looks up computations of the rest of the module."""
        self.tokens = tokens
        self._find_elsewhere = find
        self.by_name: dict[str, DraftComputation] = {}
        """The computations that were read and can be called."""
        self.computations: list[DraftComputation] = []
        """All of them, nested ones included, in the order of their ends."""
        self._names = UniqueNames()
        self._parts: dict[int, tuple[Shape, int]] = {}
        """Shapes by id, with the numbers of their parts."""

    def read_body(self, computation: DraftComputation) -> None:
        """Read a body and fill its computation."""
        self._run(self._body(computation))

    def read_alone(self, scope: Scope, name: str, start: int) -> DraftInstruction:
        """Read one instruction that is in no computation, from its shape or opcode on."""
        instruction = self._run(self._instruction(scope, name, start))
        assert isinstance(instruction, DraftInstruction)
        return instruction

    def _run(self, steps: Steps) -> object:
        """The result of a generator; those it yields are run before it goes on."""
        waiting = [steps]
        value: object = None
        while waiting:
            try:
                following = waiting[-1].send(value)
            except StopIteration as end:
                waiting.pop()
                value = end.value
            else:
                waiting.append(following)
                value = None
                if len(waiting) > MAX_DEPTH:
                    self.tokens.fail(f"instructions nested deeper than {MAX_DEPTH} levels")
        return value

    def _body(self, computation: DraftComputation) -> Steps:
        """`"{" instruction+ "}"`."""
        tokens, scope = self.tokens, Scope()
        tokens.expect("{")
        if tokens.kind == "}":
            what = f"computation `{computation.name}`" if computation.name else "a computation"
            self.fail_at(computation.span, f"{what} has no instructions")
        brace = Span(tokens.before - 1, tokens.before)
        while tokens.kind != "}":
            if tokens.kind == "end":
                self.fail_at(brace, "`{` is never closed")
            start = tokens.start
            is_root = tokens.eat("ROOT")
            if is_root and computation.root is not None:
                self.fail_at(Span(start, start + 4), "a computation has only one ROOT")
            name_start = tokens.start
            name = tokens.expect_name("the name of an instruction")
            if tokens.kind != "=":
                tokens.fail("not an instruction", _FORM, name_start)
            tokens.advance()
            instruction = yield self._instruction(scope, name, name_start)
            if is_root:
                computation.root = instruction
        tokens.advance()
        computation.instructions = scope.instructions
        computation.root = computation.root or scope.instructions[-1]
        _check_parameters(self, computation)
        self.computations.append(computation)

    def _instruction(
        self, scope: Scope, name: str, start: int, shape: Shape | None = None
    ) -> Steps:
        """`shape? opcode operands attributes`; without a name it is an operand of another."""
        tokens = self.tokens
        if shape is None and tokens.begins_shape():
            shape = tokens.read_shape()
        span = Span(tokens.start, tokens.stop)
        opcode, stage = self._opcode(has_shape=shape is not None)
        whole = f"async{stage}" if stage else opcode
        draft = DraftInstruction(name, shape or _TO_BE_INFERRED, whole, [], "", {}, span)
        if whole in PAYLOAD_OPCODES:
            self._payload(draft, shape)
        else:
            draft.operands = yield self._operands(scope)
        values = yield self._attributes(scope, draft, opcode)
        if stage:
            self._wrap(draft, opcode, stage, values)
        self._finish(draft, values, shape)
        if whole in ASYNC_OPCODES:
            copy_to_wrapped(draft)
        draft.span = Span(start, tokens.before)
        self._add(scope, draft, start)
        return draft

    def _wrap(
        self, draft: DraftInstruction, opcode: str, stage: str, values: dict[str, Value]
    ) -> None:
        """Make an async operation of `slice-start`, or check that `slice-done` ends one."""
        if stage == "-start":
            computation, problem = wrapped_computation(draft, opcode, values)
            if problem:
                self.fail_at(draft.span, problem)
            self.computations.append(computation)
            return
        start = start_of(draft)
        root = start.called["calls"][0].root if start and "calls" in start.called else None
        if root is not None and root.opcode != opcode:
            self.fail_at(draft.span, f"what was started is `{root.opcode}`, not `{opcode}`")

    def _opcode(self, *, has_shape: bool) -> tuple[str, str]:
        """The opcode; of `slice-start` the one that is wrapped, and the stage."""
        tokens = self.tokens
        word = tokens.value
        if tokens.kind != "word":
            tokens.fail("expected an opcode" if has_shape else "not an instruction", _FORM)
        if not _OPCODE.fullmatch(word):
            tokens.fail(f"`{word[:40]}` is not an opcode", _FORM)
        stage = next((ending for ending in STAGES if word.endswith(ending)), "")
        wrapped = word.removesuffix(stage)
        if word in KNOWN_OPCODES or wrapped not in KNOWN_OPCODES:
            stage, wrapped = "", word
        elif wrapped in _NOT_WRAPPED:
            tokens.fail(f"`{wrapped}` has no such stage")
        if not has_shape and (wrapped not in KNOWN_OPCODES or stage):
            tokens.fail(f"the shape of `{tokens.value}` is missing", "it cannot be inferred")
        tokens.advance()
        return wrapped, stage

    def _payload(self, draft: DraftInstruction, shape: Shape | None) -> None:
        """The number of a parameter, or the literal of a constant."""
        tokens = self.tokens
        if shape is None:
            tokens.fail(f"the shape of `{draft.opcode}` is missing", "it cannot be inferred")
        tokens.expect("(")
        if draft.opcode == "parameter":
            number = tokens.integer("the number of the parameter")
            if not 0 <= number < 2**31:
                tokens.fail("expected the number of the parameter")
            draft.payload = str(number)
            tokens.advance()
        else:
            draft.payload = read_literal(tokens, shape)
        tokens.expect(")")

    # --- operands ------------------------------------------------------------------------------

    def _operands(self, scope: Scope) -> Steps:
        """`"(" (operand ("," operand)*)? ")"`; XLA passes over a shape that nothing follows."""
        tokens = self.tokens
        tokens.expect("(")
        operands: list[DraftInstruction] = []
        while tokens.kind != ")" or operands:
            start = tokens.start
            shape = tokens.read_shape() if tokens.begins_shape() else None
            if tokens.kind == "word" and tokens.peek() == "(":
                operands.append((yield self._instruction(scope, "", start, shape)))
            elif shape is None or scope.is_loose or tokens.kind not in (",", ")"):
                operands.append(self._named_operand(scope, shape, start))
            if not tokens.eat(","):
                break
        tokens.expect(")")
        return operands

    def _named_operand(self, scope: Scope, shape: Shape | None, start: int) -> DraftInstruction:
        """`shape? name ("#" integer)*`."""
        tokens = self.tokens
        name_start, is_named = tokens.start, tokens.kind in ("word", "name")
        operand = scope.by_name.get(tokens.value) if is_named else None
        if operand is None and scope.is_loose and shape is not None:
            operand = scope.define(
                tokens.value if is_named else "", shape, Span(start, tokens.stop)
            )
        if operand is None and is_named:
            problem = f"operand `{tokens.value}` is not defined above"
            hint = "an instruction may only use earlier ones of the same computation"
            tokens.fail(problem, hint)
        if operand is None:
            hint = "an operand reads `%name`, `shape %name`, `%name#1` or `opcode(operands)`"
            tokens.fail("expected an operand", hint)
        if is_named:
            tokens.advance()
        while tokens.kind == "#":
            tokens.advance()
            operand = self._element(scope, operand, name_start)
        if shape is not None and not compatible(shape, operand.shape):
            problem = f"operand `{operand.name}` does not have this shape"
            hint = f"its shape is `{operand.shape.text_without_layout[:80]}`"
            tokens.fail(problem, hint, start)
        return operand

    def _element(self, scope: Scope, whole: DraftInstruction, start: int) -> DraftInstruction:
        """The get-tuple-element for `whole#number`, made at its first use."""
        tokens = self.tokens
        number = tokens.expect_integer()
        shape = whole.shape
        if not shape.is_tuple or not 0 <= number < len(shape.elements):
            hint = f"its shape is `{shape.text_without_layout[:80]}`"
            tokens.fail(f"`{whole.name}` has no element {number}", hint, start)
        key = f"{whole.name}#{number}"
        element = scope.by_name.get(key)
        if element is None:
            element = DraftInstruction(
                key,
                shape.elements[number],
                "get-tuple-element",
                [whole],
                "",
                {"index": str(number)},
                Span(start, tokens.start),
            )
            scope.by_name[key] = element
            element.name = sanitized(key)
            whole.has_users = True
            scope.instructions.append(element)
        return element

    # --- attributes ----------------------------------------------------------------------------

    def _attributes(self, scope: Scope, draft: DraftInstruction, opcode: str) -> Steps:
        """`("," name "=" value)*`; returns the values by name.

        Nested instructions have none: a comma could begin the next operand.
        """
        tokens, is_inside = self.tokens, not draft.name
        known = attributes_of(draft.opcode)
        if opcode != draft.opcode == "async-start":  # those of what it wraps, too
            known = known | attributes_of(opcode)
        values: dict[str, Value] = {}
        while not is_inside and tokens.eat(","):
            start, name = tokens.start, tokens.expect("attribute")
            if name in values:
                tokens.fail(f"attribute `{name}` is given twice", start=start)
            attribute = known.get(name)
            if name in _NAMED and (attribute is not None or opcode not in KNOWN_OPCODES):
                values[name] = yield self._links(scope, draft, name)
            elif attribute is not None and attribute.read is not None:
                values[name] = attribute.read(tokens)
            elif is_known(name) and opcode in KNOWN_OPCODES:
                tokens.fail(f"`{opcode}` has no `{name}=`", start=start)
            else:
                values[name] = Value(tokens.read_unknown(name))
        for name, attribute in known.items():
            is_wrapped = name == "calls" and opcode != draft.opcode
            is_missing = attribute.is_needed and name not in values and not is_wrapped
            if is_missing and not self._goes_without(draft, name):
                hint = "nested instructions have no attributes: put it on its own line"
                self.fail_at(draft.span, f"`{opcode}` needs `{name}=`", hint if is_inside else "")
        return values

    def _goes_without(self, draft: DraftInstruction, name: str) -> bool:
        """Whether an attribute that an opcode needs follows from its operands."""
        if name != "dimensions" or draft.opcode != "broadcast" or not draft.operands:
            return False
        shape = draft.operands[0].shape
        return shape.is_array and not shape.dimensions

    def _links(self, scope: Scope, draft: DraftInstruction, name: str) -> Steps:
        """The computations or instructions that an attribute names."""
        tokens = self.tokens
        if name == CONTROL_PREDECESSORS:
            draft.predecessors = tokens.listed(lambda _: self._instruction_name(scope))
            return Value("")
        callees: list[DraftComputation] = []
        if name in _LISTED:
            tokens.expect("{")
            while tokens.kind != "}" or callees:
                callees.append((yield self._computation()))
                if not tokens.eat(","):
                    break
            tokens.expect("}")
        else:
            callees.append((yield self._computation()))
        draft.called[name] = callees
        return Value("", callees)

    def _computation(self) -> Steps:
        """The name of a computation, or one in braces."""
        tokens = self.tokens
        if tokens.kind == "{":
            inner = DraftComputation("_", Span(tokens.start, tokens.stop))
            yield self._body(inner)
            return inner
        start, name = tokens.start, tokens.expect_name("the name of a computation, or `{`")
        callee = self.by_name.get(name)
        if callee is None and self._find_elsewhere is not None:
            callee = self._find_elsewhere(name)
        if callee is None:
            hint = "callees come before their callers; no computation may call itself"
            self.fail_at(
                Span(start, start + len(name)), f"computation `{name}` is not defined", hint
            )
        return callee

    def _instruction_name(self, scope: Scope) -> DraftInstruction:
        name = self.tokens.value
        if self.tokens.kind in ("word", "name") and name not in scope.by_name:
            self.tokens.fail(f"control predecessor `{name}` is not defined above")
        return scope.by_name[self.tokens.expect_name("the name of an instruction")]

    # --- what follows from operands and attributes ---------------------------------------------

    def _finish(
        self, draft: DraftInstruction, values: dict[str, Value], shape: Shape | None
    ) -> None:
        """Check an instruction, infer its shape, and write its attributes as XLA prints them."""
        arity = traits_of(as_opcode(draft.opcode)).arity
        count = len(draft.operands)
        if arity is not None and count != arity:
            wanted = "no operands" if arity == 0 else f"{arity} operand{'s'[: arity > 1]}"
            self.fail_at(draft.span, f"`{draft.opcode}` takes {wanted}, not {count}")
        if shape is None:
            draft.shape = self._inferred(draft, values)
        is_async = draft.opcode in ASYNC_OPCODES
        problem = check_stage(draft, values) if is_async else ""
        problem = problem or complete(draft, values)
        if problem:
            self.fail_at(draft.span, problem)

    def _inferred(self, draft: DraftInstruction, values: dict[str, Value]) -> Shape:
        shapes = [operand.shape for operand in draft.operands]
        data = {name: value.data for name, value in values.items()}
        callees = [callee.program_shape for callee in draft.callees]
        try:
            shape = infer_shape(Case(draft.opcode, shapes, data, callees))
        except InferenceError:
            problem = f"the shape of `{draft.opcode}` is missing and cannot be inferred"
            given = ", ".join([shape.text_without_layout for shape in shapes])
            self.fail_at(draft.span, problem, f"not from `({given[:160]})` and these attributes")
        if shape.elements and id(shape) not in self._parts:  # tuples of tuples double line by line
            count = sum(map(self._count_parts, shape.elements))
            self._parts[id(shape)] = shape, count
            if count > MAX_PARTS:
                self.fail_at(draft.span, f"the inferred tuple has more than {MAX_PARTS} parts")
        return shape

    def _count_parts(self, shape: Shape) -> int:
        known = self._parts.get(id(shape))
        if known is None:
            known = self._parts[id(shape)] = shape, sum(1 for _ in shape.subshapes())
        return known[1]

    def _add(self, scope: Scope, draft: DraftInstruction, start: int) -> None:
        """Put an instruction into its computation, under its name or one that is made."""
        if not draft.name:
            draft.name = self._names.take(f"{draft.opcode}.anon")
        else:
            self._names.take(draft.name)
        legal = sanitized(draft.name)
        if legal != draft.name:
            span = Span(start, start + 1)
            self.fail_at(span, f"`{draft.name}` is no name of an instruction", f"call it `{legal}`")
        if scope.by_name.setdefault(draft.name, draft) is not draft:
            problem = f"`{draft.name}` is defined twice in this computation"
            self.fail_at(Span(start, start + len(draft.name)), problem)
        for operand in draft.operands:
            operand.has_users = True
        scope.instructions.append(draft)

    def fail_at(self, span: Span, problem: str, hint: str = "") -> NoReturn:
        """Point at a part of the text."""
        tokens = self.tokens
        tokens.start, tokens.stop = span
        tokens.fail(problem, hint)


def _check_parameters(reader: BodyReader, computation: DraftComputation) -> None:
    """Parameters are numbered from 0, each number once."""
    found = [
        instruction for instruction in computation.instructions if instruction.opcode == "parameter"
    ]
    seen: dict[int, DraftInstruction] = {}
    for parameter in found:
        number = int(parameter.payload)
        if seen.setdefault(number, parameter) is not parameter:
            reader.fail_at(parameter.span, f"parameter {number} is defined twice")
    for number in range(len(found)):
        if number not in seen:
            hint = f"the {len(found)} parameters are numbered from 0"
            reader.fail_at(seen[max(seen)].span, f"there is no parameter {number}", hint)
