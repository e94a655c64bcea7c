"""Modules made without text are those their text would be parsed to, and plan alike."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.base.errors import EditError
from hlomem.hlo.builder import ModuleBuilder
from tests.golden_programs import GOLDEN_PROGRAMS, GoldenProgram, planned_values
from tests.hlo.structure import structure


def rebuilt(module: hlo.HloModule) -> hlo.HloModule:
    """A module like another, made with the builder alone."""
    builder = ModuleBuilder(
        module.name,
        attributes=module.attributes,
        stack_frame_tables=module.stack_frame_tables,
        style=module.style,
    )
    made: dict[hlo.HloComputation, hlo.HloComputation] = {}
    for computation in module.computations:
        body = builder.computation(computation.name, execution_thread=computation.execution_thread)
        copies: dict[hlo.HloInstruction, hlo.HloInstruction] = {}
        for each in computation.instructions:
            copies[each] = body.add(
                each.name,
                each.shape,
                each.opcode,
                [copies[operand] for operand in each.operands],
                attributes=each.attributes,
                called=[made[callee] for callee in each.called_computations],
                control_predecessors=[copies[needed] for needed in each.control_predecessors],
                payload=each.payload,
            )
        made[computation] = body.finish(copies[computation.root])
    return builder.build(made[module.entry])


@pytest.mark.parametrize("golden", GOLDEN_PROGRAMS, ids=str)
def test_a_module_made_like_xlas_prints_and_plans_like_it(golden: GoldenProgram) -> None:
    for text in golden.texts:
        module = hlo.parse(text)
        copy = rebuilt(module)
        assert structure(copy) == structure(module)
        assert hlo.format_module(copy) == text
        planned = planned_values(golden.start(hlo.parse(text)))
        assert planned_values(golden.start(copy)) == planned


def _sum(builder: ModuleBuilder) -> hlo.HloComputation:
    body = builder.computation("sum")
    x, y = body.parameter("x", "f32[]"), body.parameter("y", "f32[]")
    body.add("add", "f32[]", "add", [x, y])
    return body.finish()


def test_calls_are_printed_without_saying_how() -> None:
    builder = ModuleBuilder("m", is_scheduled=True)
    adder = _sum(builder)
    main = builder.computation("main")
    a = main.parameter("a", "f32[8]{0}")
    zero = main.constant("zero", "f32[]", "0")
    main.add(
        "reduce",
        "f32[]",
        "reduce",
        [a, zero],
        attributes={"dimensions": "{0}", "metadata": '{op_name="total"}'},
        called=[adder],
    )
    module = builder.build(main.finish())
    text = hlo.format_module(module)
    assert "reduce(%a, %zero), dimensions={0}, to_apply=%sum, metadata=" in text
    assert structure(hlo.parse(text)) == structure(module)


def _loop(builder: ModuleBuilder) -> hlo.HloModule:
    body = builder.computation("body")
    body.parameter("p", "s32[]")
    condition = builder.computation("condition")
    q = condition.parameter("q", "s32[]")
    limit = condition.constant("limit", "s32[]", "3")
    condition.add("less", "pred[]", "compare", [q, limit], attributes={"direction": "LT"})
    called = [body.finish(), condition.finish()]
    main = builder.computation("main")
    start = main.parameter("start", "s32[]")
    loop = main.add("loop", "s32[]", "while", [start], called=called)
    flag = main.constant("flag", "pred[]", "true")
    main.add("either", "s32[]", "conditional", [flag, loop, loop], called=[called[0], called[0]])
    return builder.build(main.finish(loop))


def test_loops_and_branches_name_what_they_call_in_xlas_order() -> None:
    module = _loop(ModuleBuilder("m"))
    text = hlo.format_module(module)
    assert "while(%start), condition=%condition, body=%body" in text
    assert "true_computation=%body, false_computation=%body" in text
    assert structure(hlo.parse(text)) == structure(module)


def _refused() -> dict[str, tuple[str, str]]:
    return {
        "a name with a blank": ("body.parameter('a b', 'f32[]')", "cannot be called `a b`"),
        "a name given twice": ("body.parameter('p', 'f32[]')", "`p` is defined twice"),
        "no shape": ("body.parameter('a', 'f99[]')", "cannot have shape `f99"),
        "too few operands": ("body.add('a', 'f32[]', 'add', [p])", "takes 2 operands, not 1"),
        "a stranger": ("body.add('a', 'f32[]', 'negate', [x])", "uses `x`, which is not above"),
        "no callee": ("body.add('a', 'f32[]', 'call', [p])", "calls a computation, which must be"),
        "a callee too many": (
            "body.add('a', 'f32[]', 'negate', [p], called=[adder])",
            "does not call 1 computations",
        ),
        "a payload": ("body.add('a', 'f32[]', 'negate', [p], payload='1')", "instead of `1`"),
        "an open literal": ("body.constant('a', 'f32[1]', '{1')", "`{` is never closed"),
        "no number": (
            "body.add('a', 'f32[]', 'parameter', payload='x')",
            "`x` is not the number of a parameter",
        ),
        "a gap": ("body.parameter('a', 'f32[]', number=5); body.finish()", "are not numbered"),
        "two attributes in one": (
            "body.add('a', 'f32[]', 'negate', [p], attributes={'a': 'b, c=d'})",
            "do not survive printing",
        ),
        "an unclosed attribute": (
            "body.add('a', 'f32[]', 'negate', [p], attributes={'a': '{'})",
            "is never closed",
        ),
        "a strange root": ("body.finish(x)", "the root `x` is not in computation"),
        "a second end": ("body.finish(); body.finish()", "is finished"),
        "nothing": ("builder.computation('empty').finish()", "has no instructions"),
        "a computation twice": ("builder.computation('sum')", "`sum` is defined twice"),
        "an instruction after the end": (
            "body.finish(); body.parameter('q', 'f32[]')",
            "computation `main` is finished",
        ),
        "a computation after the end": (
            "builder.build(body.finish()); builder.computation('late')",
            "module `m` is built",
        ),
        "a callee that is not finished": (
            "body.add('a', 'f32[]', 'call', [p], called=[builder.computation('g')._computation])",
            "calls `g`, which is not finished",
        ),
        "no entry": (
            "builder.build(ModuleBuilder('n').computation('c')._computation)",
            "not a finished computation",
        ),
    }


@pytest.mark.parametrize("what", _refused())
def test_what_cannot_be_is_refused(what: str) -> None:
    builder = ModuleBuilder("m")
    adder = _sum(builder)
    body = builder.computation("main")
    p = body.parameter("p", "f32[]")
    names = {"builder": builder, "adder": adder, "body": body, "p": p, "x": adder.parameters[0]}
    action, reason = _refused()[what]
    with pytest.raises(EditError, match=reason.replace("{", r"\{")):
        exec(action, {**names, "ModuleBuilder": ModuleBuilder})  # noqa: S102 - our own table


def test_shapes_that_do_not_agree_are_refused_with_the_line_they_would_be_on() -> None:
    builder = ModuleBuilder("m")
    adder = _sum(builder)
    main = builder.computation("main")
    a = main.parameter("a", "f32[8]{0}")
    main.add("call", "f32[]", "call", [a, a], called=[adder])
    with pytest.raises(EditError, match=r"(?s)has shape `f32\[8\]`.*ROOT %call = f32\[\] call"):
        builder.build(main.finish())
