"""Building modules in memory, callees first.

    builder = ModuleBuilder("double", is_scheduled=True)
    main = builder.computation("main")
    x = main.parameter("x", "f32[8]{0}")
    main.add("sum", "f32[8]{0}", "add", [x, x])
    module = builder.build(main.finish())

The result equals what `parse` makes of its printed text. Anything that the grammar or
`hlomem.hlo.verifier` refuses raises `EditError`. The users of instructions are known when their
computation is finished. Mirrors `HloComputation::Builder` and the constructors of
`hlo/ir/hlo_instruction.cc`.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from hlomem.base.errors import EditError, ParseError
from hlomem.base.patterns import lazy_pattern, repeated
from hlomem.hlo.ir import MAIN_THREAD, HloComputation, HloInstruction, HloModule
from hlomem.hlo.opcodes import Opcode, as_opcode, traits_of
from hlomem.hlo.shape import Shape
from hlomem.hlo.text.attributes import TextProblem, check_brackets, iter_attributes
from hlomem.hlo.text.body import CONTROL_PREDECESSORS
from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.hlo.text.stack_frames import NO_TABLES, StackFrameTables
from hlomem.hlo.text.style import TextStyle
from hlomem.hlo.verifier import verify_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_NAME = lazy_pattern(r"[A-Za-z0-9_.\-]+")
_OPCODE = lazy_pattern(r"[a-z][\w\-]*", re.ASCII)
_PLAIN_NAME = lazy_pattern(r"[A-Za-z_][\w.\-]*+", re.ASCII)
_IN_QUOTES = repeated(r'[^"\\\n]++|\\[^\n]')
_INSIDE = rf'''[^{{}}()\[\]"'\n]++|"{_IN_QUOTES}"'''
_BRACES = repeated(rf"{_INSIDE}|\{{{repeated(_INSIDE)}\}}")
_PLAIN_VALUE = lazy_pattern(rf'(?:[\w.%+\-]++|\{{{_BRACES}\}}|"[^"\\\n]*+")', re.ASCII)
"""A word, a string, or nested braces with strings, which cannot end too early."""
_GENERIC = frozenset(
    {
        CONTROL_PREDECESSORS,
        "backend_config",
        "frontend_attributes",
        "is_composite",
        "metadata",
        "origin",
        "result_accuracy",
        "sharding",
        "statistics",
    }
)
"""Attributes of any opcode, printed after its own."""
_BRANCHES_OF_PREDICATE = 2
_MAX_REMEMBERED = 1024


class ModuleBuilder:
    """A module in construction."""

    def __init__(
        self,
        name: str,
        *,
        is_scheduled: bool = False,
        attributes: Mapping[str, str] | None = None,
        stack_frame_tables: StackFrameTables = NO_TABLES,
        style: TextStyle | None = None,
    ) -> None:
        """`attributes` are those of the header; `is_scheduled` is one of them."""
        check_name(name, "a module")
        header = {"is_scheduled": "true"} if is_scheduled else {}
        header.update(attributes or {})
        check_attribute_texts(header, f"the header of `{name}`")
        chosen = style or TextStyle()
        self._module = HloModule(name, header, stack_frame_tables, style=lambda: chosen)
        self._names: set[str] = set()
        self._is_built = False

    def computation(self, name: str, *, execution_thread: str = MAIN_THREAD) -> ComputationBuilder:
        """Begin a computation; its callees must be finished before it."""
        check_name(name, "a computation")
        if self._is_built:
            raise EditError(f"module `{self._module.name}` is built: nothing can be added to it")
        if name in self._names:
            raise EditError(f"computation `{name}` is defined twice")
        self._names.add(name)
        computation = HloComputation(self._module, name, -1, False, execution_thread)
        return ComputationBuilder(computation)

    def build(self, entry: HloComputation) -> HloModule:
        """The module; raises `EditError` if its shapes do not agree."""
        module = self._module
        if entry not in module.computations:
            raise EditError(f"entry `{entry.name}` is not a finished computation of this module")
        self._is_built = True
        module.entry, entry.is_entry = entry, True
        verified(module)
        return module


class ComputationBuilder:
    """A computation in construction."""

    def __init__(self, computation: HloComputation) -> None:
        self._computation = computation
        self._instructions: dict[str, HloInstruction] = {}
        self._is_finished = False

    def parameter(
        self,
        name: str,
        shape: Shape | str,
        *,
        number: int | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> HloInstruction:
        """Add a parameter, by default with the next number."""
        if number is None:
            number = sum(added.opcode == "parameter" for added in self._instructions.values())
        return self.add(name, shape, "parameter", payload=str(number), attributes=attributes)

    def constant(
        self,
        name: str,
        shape: Shape | str,
        literal: str,
        *,
        attributes: Mapping[str, str] | None = None,
    ) -> HloInstruction:
        """Add a constant with its printed literal: `1`, `{1, 2}`, `{...}`."""
        return self.add(name, shape, "constant", payload=literal, attributes=attributes)

    def add(
        self,
        name: str,
        shape: Shape | str,
        opcode: str,
        operands: Sequence[HloInstruction] = (),
        *,
        attributes: Mapping[str, str] | None = None,
        called: Sequence[HloComputation] = (),
        control_predecessors: Sequence[HloInstruction] = (),
        payload: str = "",
    ) -> HloInstruction:
        """Append an instruction.

        `called` is in the order of `HloInstruction.called_computations`. Attributes that name
        computations or control predecessors may be omitted; the links take precedence.
        """
        if self._is_finished:
            raise EditError(f"computation `{self._computation.name}` is finished")
        if name in self._instructions:
            where = f"in computation `{self._computation.name}`"
            raise EditError(f"`{name}` is defined twice {where}")
        instruction = make_instruction(
            self._computation,
            name,
            shape,
            as_opcode(opcode),
            operands,
            attributes=attributes or {},
            called=called,
            control_predecessors=control_predecessors,
            payload=payload,
            known=self._instructions,
        )
        instruction.index = len(self._instructions)
        self._instructions[name] = instruction
        return instruction

    def finish(self, root: HloInstruction | None = None) -> HloComputation:
        """The computation, which others may call now; the default root is the last instruction."""
        computation = self._computation
        if self._is_finished or not self._instructions:
            what = "is finished" if self._is_finished else "has no instructions"
            raise EditError(f"computation `{computation.name}` {what}")
        instructions = list(self._instructions.values())
        root = instructions[-1] if root is None else root
        if self._instructions.get(root.name) is not root:
            raise EditError(f"the root `{root.name}` is not in computation `{computation.name}`")
        computation.fill(instructions, numbered_parameters(computation, instructions), root)
        computation.index = len(computation.module.computations)
        computation.module.computations.append(computation)
        self._is_finished = True
        return computation


def make_instruction(
    parent: HloComputation,
    name: str,
    shape: Shape | str,
    opcode: Opcode,
    operands: Sequence[HloInstruction],
    *,
    attributes: Mapping[str, str],
    called: Sequence[HloComputation],
    control_predecessors: Sequence[HloInstruction],
    payload: str,
    known: Mapping[str, HloInstruction],
) -> HloInstruction:
    """An instruction in no list yet, which may use the `known` ones, by name."""
    check_name(name, "an instruction")
    check_form(name, opcode, len(operands), payload)
    for operand in (*operands, *control_predecessors):
        if known.get(operand.name) is not operand:
            raise EditError(
                f"`{name}` uses `{operand.name}`, which is not above it in its computation"
            )
    for callee in called:
        if callee.module is not parent.module or not callee.is_open:
            raise EditError(f"`{name}` calls `{callee.name}`, which is not finished in its module")
        if opcode == "fusion":
            callee.is_fused = True
    texts = link_attributes(opcode, operands, attributes, called, control_predecessors, name)
    check_attribute_texts(texts, f"`{name}`")
    return HloInstruction(
        name,
        as_shape(shape, name),
        opcode,
        tuple(operands),
        payload,
        texts,
        parent,
        -1,
        tuple(called),
        tuple(control_predecessors),
    )


def as_shape(shape: Shape | str, name: str) -> Shape:
    if isinstance(shape, Shape):
        return shape
    try:
        return parse_shape_text(shape)
    except ParseError as error:
        raise EditError(f"`{name}` cannot have shape `{shape}`: {error.problem}") from None


def check_name(name: str, what: str) -> None:
    """Raise unless a module can contain this name."""
    if _NAME.fullmatch(name) is None:
        raise EditError(f"{what} cannot be called `{name}`: use letters, digits, `_`, `.` and `-`")


def check_form(name: str, opcode: Opcode, count: int, payload: str) -> None:
    """Raise unless an opcode takes this many operands, or this payload."""
    if _OPCODE.fullmatch(opcode) is None:
        raise EditError(f"`{name}` cannot have opcode `{opcode}`")
    traits = traits_of(opcode)
    arity = traits.arity
    if arity is not None and arity != count:
        raise EditError(f"`{name}`: `{opcode}` takes {arity} operands, not {count}")
    if not traits.has_payload:
        if payload:
            raise EditError(f"`{name}`: `{opcode}` has operands instead of `{payload}`")
        return
    if opcode == "parameter" and not (payload.isascii() and payload.isdecimal()):
        raise EditError(f"`{name}`: `{payload}` is not the number of a parameter")
    try:
        check_brackets(payload)
    except TextProblem as problem:
        raise EditError(f"`{name}`: its literal has a problem: {problem.problem}") from None


def check_attribute_texts(attributes: Mapping[str, str], where: str) -> None:
    """Raise unless attributes survive printing and parsing."""
    if all(_round_trips(name, text) for name, text in attributes.items()):
        return
    text = "".join([f", {name}={value}" for name, value in attributes.items()])
    try:
        read = {name: text[start:end] for name, start, end in iter_attributes(text)}
    except TextProblem as problem:
        raise EditError(f"{where}: {problem.problem} in `{text}`") from None
    if read != dict(attributes) or "\n" in text:
        raise EditError(f"{where}: its attributes do not survive printing as `{text}`")


@lru_cache(maxsize=_MAX_REMEMBERED)
def _round_trips(name: str, text: str) -> bool:
    """Whether an attribute survives printing and parsing; many instructions have the same."""
    if _PLAIN_NAME.fullmatch(name) and _PLAIN_VALUE.fullmatch(text):
        return True
    printed = f", {name}={text}"
    try:
        found = [(key, printed[start:end]) for key, start, end in iter_attributes(printed)]
    except TextProblem:
        return False
    return found == [(name, text)] and ("\n" not in text or _keeps_lines(printed, {name: text}))


def _keeps_lines(printed: str, attributes: Mapping[str, str]) -> bool:
    """Whether an instruction that goes on in the next line is read as it was."""
    from hlomem.hlo.text.parser import parse  # noqa: PLC0415 - few attributes need it

    header = "HloModule m, entry_computation_layout={()->token[]}"
    try:
        module = parse(f"{header}\n\nENTRY %e {{\n  ROOT %k = token[] after-all(){printed}\n}}\n")
        return len(module.computations) == 1 and module.entry.root.attributes == attributes
    except ParseError:
        return False


def link_attributes(
    opcode: Opcode,
    operands: Sequence[HloInstruction],
    attributes: Mapping[str, str],
    called: Sequence[HloComputation],
    control_predecessors: Sequence[HloInstruction],
    name: str,
) -> dict[str, str]:
    """Attributes that name the links; omitted ones are added before the generic ones."""
    has_links = called or control_predecessors or CONTROL_PREDECESSORS in attributes
    if not has_links and not _roles(opcode) and _in_printed_order(attributes):
        return dict(attributes)
    if _calls_as_usual(opcode, attributes, called, control_predecessors):
        own = {key: text for key, text in attributes.items() if key not in _GENERIC}
        return {**own, _roles(opcode)[0]: f"%{called[0].name}", **attributes}
    given = {key: text for key, text in attributes.items() if key in _roles(opcode)}
    forms = given or _usual_call_forms(opcode, operands, len(called))
    counts = {key: _count_names(forms[key]) for key in _roles(opcode) if key in forms}
    if sum(counts.values()) != len(called):
        problem = f"`{name}`: `{opcode}` with {', '.join(forms) or 'no such attribute'}"
        raise EditError(f"{problem} does not call {len(called)} computations")
    traits = traits_of(opcode)
    if traits.calls and traits.needs != "nothing" and not called:
        raise EditError(f"`{name}`: `{opcode}` calls a computation, which must be given")
    callees = iter(called)
    texts = {
        key: _format_names([next(callees).name for _ in range(count)], forms[key])
        for key, count in counts.items()
    }
    if control_predecessors:
        names = [predecessor.name for predecessor in control_predecessors]
        texts[CONTROL_PREDECESSORS] = _format_names(names, "{}")
    own = {key: text for key, text in attributes.items() if key not in _GENERIC}
    rest = {key: text for key, text in attributes.items() if key not in own}
    if not control_predecessors:
        rest.pop(CONTROL_PREDECESSORS, None)
    ordered = {**own, **{key: texts[key] for key in forms}, **rest, **texts}
    return {key: texts.get(key, text) for key, text in ordered.items()}


def _calls_as_usual(
    opcode: Opcode,
    attributes: Mapping[str, str],
    called: Sequence[HloComputation],
    control_predecessors: Sequence[HloInstruction],
) -> bool:
    """Whether the only attribute for callees is omitted and there is one callee, the usual case."""
    roles = _roles(opcode)
    has_control = control_predecessors or CONTROL_PREDECESSORS in attributes
    return len(called) == 1 == len(roles) and not has_control and roles[0] not in attributes


def _in_printed_order(attributes: Mapping[str, str]) -> bool:
    generic = [key in _GENERIC for key in attributes]
    return generic == sorted(generic)


@cache
def _roles(opcode: Opcode) -> list[str]:
    """The attributes of an opcode that name computations, in the order of the links."""
    return [key for key, _ in traits_of(opcode).calls]


def _usual_call_forms(
    opcode: Opcode, operands: Sequence[HloInstruction], count: int
) -> dict[str, str]:
    """The attributes XLA prints for calls, in order, with braces for lists."""
    if not count:
        return {}
    if opcode == "while":
        return {"condition": "%", "body": "%"}
    if opcode == "conditional":
        is_predicate = bool(operands) and operands[0].shape.element_type.text == "pred"
        if is_predicate and count == _BRANCHES_OF_PREDICATE:
            return {"true_computation": "%", "false_computation": "%"}
        return {"branch_computations": f"{{{',' * (count - 1)}%}}"}
    roles = _roles(opcode)
    if len(roles) == count <= _BRANCHES_OF_PREDICATE and opcode != "custom-call":
        return dict.fromkeys(roles, "%")
    return {"called_computations": f"{{{',' * (count - 1)}%}}"}


def _count_names(text: str) -> int:
    return text.count(",") + 1 if text.strip("{} ") else 0


def _format_names(names: Iterable[str], form: str) -> str:
    """Names with braces and `%` as in another text."""
    mark = "%" if "%" in form or not form.strip("{}") else ""
    text = ", ".join([f"{mark}{name}" for name in names])
    return f"{{{text}}}" if form.startswith("{") else text


def numbered_parameters(
    computation: HloComputation, instructions: Sequence[HloInstruction]
) -> list[HloInstruction]:
    """The parameters by number; raises if one is missing or repeated."""
    parameters = [instruction for instruction in instructions if instruction.opcode == "parameter"]
    parameters.sort(key=lambda parameter: parameter.parameter_number)
    for number, parameter in enumerate(parameters):
        if parameter.parameter_number != number:
            problem = f"the {len(parameters)} parameters of `{computation.name}` are not numbered"
            raise EditError(f"{problem} from 0 on: `{parameter.name}` has {parameter.payload}")
    return parameters


def verified(module: HloModule) -> HloModule:
    """The module; raises `EditError` if its shapes do not agree."""
    try:
        verify_module(module)
    except ParseError as error:
        raise EditError(str(error)) from None
    return module
