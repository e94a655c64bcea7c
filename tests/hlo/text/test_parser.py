"""Text to model: every form the text has, what is read at once and what later."""

from __future__ import annotations

import gc

import pytest

from hlomem.hlo import CallRole, HloModule, TextStyle, format_module, parse

LONG = """\
HloModule jit_f, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {2}, must-alias) }, entry_computation_layout={(f32[4]{0}, (f32[4]{0}, s32[]))->(f32[4]{0}, s32[])}, num_partitions=2, made_up={a, b}

%fused (q: f32[4]) -> f32[4] {
  %q = f32[4]{0} parameter(0)
  ROOT %n = f32[4]{0} negate(%q)
}

%body (s: (f32[4], s32[])) -> (f32[4], s32[]) {
  ROOT %s = (f32[4]{0}, s32[]) parameter(0)
}

%cond (t: (f32[4], s32[])) -> pred[] {
  %t = (f32[4]{0}, s32[]) parameter(0)
  ROOT %c = pred[] constant(false)
}

ENTRY %main (x: f32[4], y: (f32[4], s32[])) -> (f32[4], s32[]) {
  %y = (f32[4]{0}, s32[]) parameter(1)
  %x = f32[4]{0} parameter(0), metadata={op_name="x \\"quoted\\"" source_file="a.py" source_line=7}
  %fusion = f32[4]{0} fusion(%x), kind=kLoop, calls=%fused, backend_config={"a":{"b":[1]}}
  %k = s32[] get-tuple-element(%y), index=1, control-predecessors={%x, %fusion}
  %init = (f32[4]{0}, s32[]) tuple(%fusion, %k)
  ROOT %w = (f32[4]{0}, s32[]) while(%init), condition=%cond, body=%body
}

"""  # noqa: E501


@pytest.fixture
def module() -> HloModule:
    return parse(LONG)


def test_header(module: HloModule) -> None:
    assert module.name == "jit_f"
    assert module.is_scheduled
    assert module.num_partitions == 2
    assert module.replica_count == 1
    assert module.attributes["made_up"] == "{a, b}"
    first, second = module.input_output_alias
    assert (first.output_index, first.parameter_number, first.must_alias) == ((0,), 0, False)
    assert (second.parameter_index, second.must_alias) == ((2,), True)
    layout = module.entry_computation_layout
    assert layout is not None
    assert [shape.text for shape in layout.parameters] == ["f32[4]{0}", "(f32[4]{0}, s32[])"]


def test_buffer_donors() -> None:
    text = LONG.replace(", num_partitions=2", ", buffer_donor={ (0, {}), (1, {0}) }")
    donors = parse(text).buffer_donor
    assert [(donor.parameter_number, tuple(donor.parameter_index)) for donor in donors] == [
        (0, ()),
        (1, (0,)),
    ]


def test_links(module: HloModule) -> None:
    y, x, fusion, k, init, w = module.entry.instructions
    assert module.entry.root is w
    assert w.is_root
    assert module.entry.parameters == [x, y]
    assert init.operands == (fusion, k)
    assert fusion.users == [init]
    assert k.control_predecessors == (x, fusion)
    assert k.tuple_index == 1
    assert [call.role for call in w.calls] == [CallRole.BODY, CallRole.CONDITION]
    assert [call.computation.name for call in w.calls] == ["body", "cond"]
    assert fusion.calls[0].role is CallRole.FUSION


def test_attributes(module: HloModule) -> None:
    x, fusion = module.entry.instructions[1:3]
    assert x.metadata.op_name == 'x "quoted"'
    assert (x.metadata.source_file, x.metadata.source_line) == ("a.py", 7)
    assert fusion.backend_config == {"a": {"b": [1]}}
    assert fusion.attributes["kind"] == "kLoop"
    assert x.backend_config is None


def test_each_user_is_listed_once() -> None:
    text = (
        "HloModule m\n\nENTRY %c {\n  %p = f32[] parameter(0)\n  ROOT %a = f32[] add(%p, %p)\n}\n"
    )
    entry = parse(text).entry
    assert entry.parameters[0].users == [entry.root]


def test_fused_bodies_stay_text_until_read(module: HloModule) -> None:
    fused = module.computation_by_name["fused"]
    assert fused.is_fused
    assert not fused.is_open
    assert [(shape.text, opcode) for shape, opcode in fused.outline()] == [
        ("f32[4]{0}", "parameter"),
        ("f32[4]{0}", "negate"),
    ]
    assert not fused.is_open
    assert fused.root.opcode == "negate"
    assert fused.is_open


def test_everything_else_is_read_at_once(module: HloModule) -> None:
    names = [computation.name for computation in module.computations if computation.is_open]
    assert names == ["body", "cond", "main"]


def test_not_lazy_reads_everything() -> None:
    assert all(computation.is_open for computation in parse(LONG, lazy=False).computations)


def test_collector_is_left_as_it_was() -> None:
    gc.disable()
    try:
        parse(LONG)
        assert not gc.isenabled()
    finally:
        gc.enable()
    parse(LONG)
    assert gc.isenabled()


def test_short_form() -> None:
    text = """\
HloModule m

ENTRY c {
  p = f32[] parameter(0)
  xp = f32[] negate(p)
  ROOT a = f32[] add(xp, p)
}

"""
    parsed = parse(text)
    assert parsed.style == TextStyle(percent=False, program_shape=False)
    assert [operand.name for operand in parsed.entry.root.operands] == ["xp", "p"]
    assert format_module(parsed) == text


def test_operand_shapes() -> None:
    text = """\
HloModule m

ENTRY %c (p: (f32[2], s32[])) -> f32[2] {
  %p = (f32[2]{0:T(8,128)}, s32[]) parameter(0)
  ROOT %a = f32[2]{0:T(8,128)} get-tuple-element((f32[2]{0:T(8,128)}, s32[]) %p), index=0
}

"""
    parsed = parse(text)
    assert parsed.style.operand_shapes
    assert format_module(parsed) == text


def test_compact_elements_become_instructions() -> None:
    text = """\
HloModule m

ENTRY %c (p: (f32[], (s32[], s32[]))) -> s32[] {
  %p = (f32[], (s32[], s32[])) parameter(0)
  ROOT %a = s32[] add(%p#1#0, %p#1#0)
}

"""
    parsed = parse(text)
    assert [each.name for each in parsed.entry.instructions] == ["p", "p_1", "p_1_0", "a"]
    element = parsed.entry.instructions[2]
    assert (element.opcode, element.tuple_index, element.users) == (
        "get-tuple-element",
        0,
        [parsed.entry.root],
    )
    assert parsed.style.compact_gte
    assert format_module(parsed) == text


def test_many_operands_carry_index_comments() -> None:
    operands = "%p, %p, %p, %p, %p, /*index=5*/%p"
    shape = "(" + ", ".join(["f32[]"] * 5) + ", /*index=5*/f32[])"
    text = f"""\
HloModule m

ENTRY %c (p: f32[]) -> {shape} {{
  %p = f32[] parameter(0)
  ROOT %t = {shape} tuple({operands})
}}

"""
    parsed = parse(text)
    assert len(parsed.entry.root.operands) == 6
    assert format_module(parsed) == text


def test_unknown_opcodes_are_kept_and_may_call() -> None:
    text = """\
HloModule m

%f (q: f32[]) -> f32[] {
  ROOT %q = f32[] parameter(0)
}

ENTRY %c (p: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  ROOT %a = f32[] frobnicate(%p, %p, %p), to_apply=%f, depth=3
}

"""
    parsed = parse(text)
    assert parsed.entry.root.called_computations == (parsed.computations[0],)
    assert parsed.entry.root.attributes["depth"] == "3"
    assert format_module(parsed) == text


@pytest.mark.parametrize(
    "literal", ["{ {1, 2}, {3, 4} }", "{...}", "(1, -2)", "{(1, 2), (3, 4)}", "nan", ""]
)
def test_literals(literal: str) -> None:
    text = f"""\
HloModule m

ENTRY %c () -> c64[2] {{
  ROOT %k = c64[2]{{0}} constant({literal}), sharding={{replicated}}
}}

"""
    root = parse(text).entry.root
    assert root.payload == literal
    assert root.attributes == {"sharding": "{replicated}"}


def test_without_entry_the_last_computation_is_it() -> None:
    text = """\
HloModule m

%a {
  ROOT %p = f32[] parameter(0)
}

%b {
  %p = f32[] parameter(0)
  %q = f32[] negate(%p)
}
"""
    parsed = parse(text)
    assert parsed.entry.name == "b"
    assert parsed.entry.root.name == "q"  # without a ROOT, the last instruction


def test_windows_line_ends() -> None:
    assert format_module(parse(LONG.replace("\n", "\r\n"))) == LONG


def test_any_layout_is_read() -> None:
    text = """\
HloModule m ENTRY c { p = f32[2] {0} parameter(0) // hi
 t = (f32[2]{0},
 f32[2]{0}) /* x */ tuple(p,p), metadata={
 op_name="a  b"} ROOT a =f32[2]{0} add (p, p) }"""
    parsed = parse(text, lazy=False)
    assert [each.name for each in parsed.entry.instructions] == ["p", "t", "a"]
    assert parsed.entry.instructions[1].metadata.op_name == "a  b"
    assert format_module(parse(format_module(parsed))) == format_module(parsed)


def test_execution_threads_and_async_calls() -> None:
    text = """\
HloModule m

%f (q: f32[8]) -> f32[4] {
  %q = f32[8]{0} parameter(0)
  ROOT %s = f32[4]{0} slice(%q), slice={[0:4]}
}, execution_thread="copy"

ENTRY %c (p: f32[8]) -> f32[4] {
  %p = f32[8]{0} parameter(0)
  %start = ((f32[8]{0}), f32[4]{0}, u32[]) async-start(%p), async_execution_thread="copy", calls=%f
  ROOT %done = f32[4]{0} async-done(%start)
}

"""
    parsed = parse(text)
    computation = parsed.computations[0]
    assert computation.execution_thread == "copy"
    assert parsed.entry.root.async_wrapped_computation is computation
    assert parsed.entry.root.async_start is parsed.entry.instructions[1]
    assert format_module(parsed) == text


def test_sugared_async_operations_become_plain_ones() -> None:
    text = """\
HloModule m

ENTRY %c (p: f32[8]) -> f32[4] {
  %p = f32[8]{0} parameter(0)
  %start = ((f32[8]{0}), f32[4]{0}, u32[]) slice-start(%p), slice={[0:4]}
  ROOT %done = f32[4]{0} slice-done(%start)
}

"""
    parsed = parse(text, lazy=False)
    start = parsed.entry.instructions[1]
    assert start.opcode == "async-start"
    wrapped = start.called_computations[0].root
    assert (wrapped.opcode, wrapped.shape.text) == ("slice", "f32[4]{0}")
    assert wrapped.attributes == {"slice": "{[0:4]}"}
    assert parsed.style.async_sugar
    assert format_module(parsed) == text


def test_a_string_may_look_like_a_call() -> None:
    text = LONG.replace("kind=kLoop", 'frontend_attributes={a=", calls=%nobody"}, kind=kLoop')
    fusion = parse(text).entry.instructions[2]
    assert fusion.called_computations[0].name == "fused"


def test_spans(module: HloModule) -> None:
    span = module.entry.instructions[2].span
    assert LONG[span.start : span.end].startswith("%fusion = f32[4]{0} fusion(%x)")


KERNEL = """HloModule m, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %k = f32[8]{0} custom-call(%x), custom_call_target="k", frontend_attributes={kernel_metadata={
"xprof_metadata":"{\\"block_q\\": 512}"
}}, metadata={op_name="jit(f)/splash"}
  ROOT %y = f32[8]{0} negate(%k)
}
"""
"""As libtpu 0.0.51 prints the metadata that JAX's splash attention gives its kernels."""


def test_braces_that_close_a_kernels_metadata_close_no_computation() -> None:
    module = parse(KERNEL, lazy=False)
    kernel = module.entry.root.operands[0]
    assert kernel.metadata.op_name == "jit(f)/splash"
    assert "block_q" in kernel.attributes["frontend_attributes"]
    assert format_module(module).rstrip() == KERNEL.rstrip()
