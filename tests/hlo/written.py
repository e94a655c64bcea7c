"""Small texts as people write them, and texts that XLA refuses.

`WRITTEN` by name: `tools/record_written.py` asks XLA what it prints for each, and for each of
`tests/hlo/forms.py`; `REFUSED` by name: it asks XLA where it stops.
"""
# ruff: noqa: E501 - an instruction is one line of a text

from __future__ import annotations

_ADD = "add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = add(x, y) }\n"


def entry(*lines: str, before: str = "", header: str = "") -> str:
    """A module of one computation and maybe others."""
    body = "".join(f"  {line}\n" for line in lines)
    return f"HloModule m{header}\n\n{before}\nENTRY e {{\n{body}}}\n"


WRITTEN = {
    # Shapes that are left out or have blanks.
    "shapes left out": entry("p = f32[4, 8] parameter(0)", "n = negate(p)", "ROOT t = tuple(n, p)"),
    "blanks in layouts": entry("p = f32[2, 3]{1, 0: T(8, 128) (2, 1) S( 1 )} parameter(0)", "ROOT n = negate(p)"),
    "shape over lines": entry("p = (f32[2],\n    s32[ ] , (pred[<= 3], token[]))\n  parameter(0)", "ROOT g = get-tuple-element(p), index=2"),
    "no layout is the default one": entry("p = f32[2,3,4] parameter(0)", "ROOT q = bf16[] parameter(1)"),
    "inferred in a fusion": entry("p = f32[4] parameter(0)", "ROOT f = f32[4] fusion(p), kind=kLoop, calls=c", before="c { q = f32[4] parameter(0) ROOT a = abs(q) }"),
    # Instructions and computations inside of instructions.
    "inline operands": entry("p = f32[] parameter(0)", "ROOT r = add(multiply(p, p), f32[] constant(1))"),
    "inline operands, nested": entry("p = f32[2] parameter(0)", "ROOT r = tuple(add(abs(negate(p)), p), (f32[2]) tuple(p), f32[2] copy(f32[2] p))"),
    "inline with names that are taken": entry("add.anon = f32[] parameter(0)", "ROOT r = negate(add(add.anon, add(add.anon, add.anon)))"),
    "inline computation": entry("p = f32[4] parameter(0)", "z = f32[] constant(0)", "ROOT r = reduce(p, z), dimensions={0}, to_apply={ x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = add(x, y) }"),
    "inline computations in a list": entry("i = s32[] parameter(0)", "p = f32[] parameter(1)", "ROOT r = conditional(i, p, p), branch_computations={{ q = f32[] parameter(0) ROOT n = negate(q) }, { ROOT q = f32[] parameter(0) }}"),
    "inline in an inline computation": entry("p = f32[] parameter(0)", "ROOT c = call(p), to_apply={ q = f32[] parameter(0) ROOT d = call(q), to_apply={ r = f32[] parameter(0) ROOT n = abs(negate(r)) } }"),
    "one instruction": "ROOT %r = f32[10] add(f32[10] %x, f32[10])",
    "one instruction without a name": "f32[4] fusion(f32[4] x), kind=kLoop, calls={ p = f32[4] parameter(0) ROOT n = negate(p) }",
    "a shape in place of an operand": entry("p = f32[] parameter(0)", "ROOT r = f32[] add(p, f32[], p)"),
    # Names and order.
    "names of two computations": entry("x = f32[] parameter(0)", "s.1 = f32[] negate(x)", "ROOT s = f32[] call(x, s.1), to_apply=add", before=_ADD),
    "numbers in names": entry("a.007 = f32[] parameter(0)", "a.7 = f32[] negate(a.007)", "a.0 = f32[] negate(a.7)", "a = f32[] negate(a.0)", "ROOT b.x.3 = f32[] negate(a)"),
    "unscheduled instructions": entry("z = f32[] constant(1)", "p = f32[] parameter(0)", "unused = f32[] negate(z)", "q = f32[] parameter(1)", "ROOT r = f32[] subtract(q, p)"),
    "scheduled instructions": entry("z = f32[] constant(1)", "p = f32[] parameter(0)", "q = f32[] parameter(1)", "ROOT r = f32[] subtract(q, p)", header=", is_scheduled=true"),
    "scheduled, but fused": entry("p = f32[] parameter(0)", "ROOT f = f32[] fusion(p), kind=kLoop, calls=c", before="c { z = f32[] constant(1) q = f32[] parameter(0) ROOT s = f32[] subtract(q, z) }", header=", is_scheduled=true"),
    "control predecessors decide": entry("p = f32[] parameter(0)", "a = f32[] negate(p)", "b = f32[] abs(p)", "ROOT r = f32[] cosine(p), control-predecessors={b, a}"),
    "computations nobody calls": entry("ROOT p = f32[] parameter(0)", before=f"{_ADD}lonely {{ ROOT c = s32[] constant(3) }}\n"),
    "callees in XLA's order": entry("i = pred[] parameter(0)", "p = f32[] parameter(1)", "ROOT r = f32[] conditional(i, p, p), false_computation=no, true_computation=yes", before="no { ROOT q = f32[] parameter(0) }\nyes { q = f32[] parameter(0) ROOT n = f32[] negate(q) }\n"),
    "a condition of two loops": entry("p = f32[] parameter(0)", "ROOT w = while(p), condition=c, body=outer", before="c { q = f32[] parameter(0) ROOT k = pred[] constant(false) }\ninner { q = f32[] parameter(0) ROOT n = negate(q) }\nouter { q = f32[] parameter(0) ROOT w = while(q), condition=c, body=inner }\n"),
    # Attributes: other orders, values that go unsaid, quotes.
    "attributes in any order": entry("p = f32[4,8] parameter(0)", "z = f32[] constant(0)", 'ROOT r = f32[4] reduce(p, z), metadata={source_line=3 op_name="x"}, to_apply=add, dimensions={1}', before=_ADD),
    "values that go unsaid": entry("p = f32[4] parameter(0)", "s = f32[4] sort(p), is_stable=false, dimensions={0}, to_apply=less", "ROOT t = (f32[2], s32[2]) topk(s), k=2", before="less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = compare(a, b), direction=LT, type=FLOAT }\n"),
    "total order": entry("p = f32[] parameter(0)", "i = s32[] parameter(1)", "a = compare(p, p), direction=LT, type=TOTALORDER", "b = compare(i, i), direction=GE, type=SIGNED", "c = compare(p, p), direction=EQ, order=TOTAL", "ROOT t = tuple(a, b, c)"),
    "single quotes and escapes": entry("p = f32[4] parameter(0)", "ROOT c = f32[4] custom-call(p), custom_call_target='it\\'s \"x\"', metadata={op_name='\\x41\\101\\n'}"),
    "callees of a custom call": entry("p = f32[4] parameter(0)", "ROOT c = f32[4] custom-call(p), to_apply=add, custom_call_target=\"x\"", before=_ADD),
    "no groups": entry("p = f32[4] parameter(0)", "ROOT r = f32[4] all-reduce(p), to_apply=add", before=_ADD),
    "a channel": entry("p = f32[4] parameter(0)", "ROOT r = f32[4] all-reduce(p), to_apply=add, use_global_device_ids=true, replica_groups={ {0, 1} }, channel_id=3, mode=flattened_id", before=_ADD),
    "iota groups in normal form": entry("p = f32[4] parameter(0)", "a = f32[4] all-reduce(p), replica_groups=[2,4]<=[2,1,4]T(1,0,2), to_apply=add", "ROOT b = f32[4] all-reduce(a), replica_groups=[4,2]<=[2,2,2]T(1,2,0), to_apply=add", before=_ADD),
    "groups of a mesh": entry("p = f32[4] parameter(0)", "ROOT r = f32[4] all-reduce(p), replica_groups=mesh['a'=2, 'b'=2] {'b'}, to_apply=add", before=_ADD),
    "window in any order": entry("p = f32[8,8] parameter(0)", "z = f32[] constant(0)", "ROOT r = reduce-window(p, z), window={pad=0_1x1_0 size=2x2 rhs_dilate=1x1 stride=2x1}, to_apply=add", before=_ADD),
    "strides of slices": entry("p = f32[8,8] parameter(0)", "a = f32[2,8] slice(p), slice={[0:2:1], [0:8]}", "ROOT b = f32[4,2] slice(p), slice={[0:8:2], [0:2]}"),
    "padding without interior": entry("p = f32[2,2] parameter(0)", "z = f32[] constant(0)", "a = pad(p, z), padding=1_1_0x0_0_0", "ROOT b = pad(p, z), padding=1_1x0_0_3"),
    "precision as usual": entry("p = f32[2,2] parameter(0)", "a = dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={default,default}", "ROOT b = dot(a, p), rhs_contracting_dims={0}, lhs_contracting_dims={1}, operand_precision={HIGHEST,default}"),
    "empty values": entry("p = f32[2] parameter(0), frontend_attributes={}, metadata={}, statistics={}", 'ROOT c = f32[2] custom-call(p), custom_call_target="", backend_config="", frontend_attributes={a=""}'),
    "configs": entry("p = f32[2] parameter(0), backend_config={ a:{ \"x\" : [ 1 , 2 ] } }", "ROOT q = f32[2] negate(p), backend_config=\"{not json\", frontend_attributes={z=\"1\", a={\"k\": 3}}"),
    "config over lines": entry('p = f32[2] parameter(0)', 'ROOT q = f32[2] negate(p), backend_config={\n      "a":1,\n      "b":{}}'),
    "statistics": entry("ROOT p = f32[2] parameter(0), statistics={visualizing_index=1,a=1,b=0.25}"),
    "accuracy": entry("p = f32[2] parameter(0)", "a = tanh(p), result_accuracy={mode=default}", "b = log(a), result_accuracy={tolerance={rtol=0.5,ulps=2}}", "ROOT c = exponential(b), result_accuracy={mode=HIGHEST}"),
    "origins": entry("p = (f32[], f32[2]) parameter(0), origin={({\"v\" {0}},{\"w\"})}", "ROOT g = get-tuple-element(p), index=1, origin={ { \"w\" } }"),
    "aliases of operands": entry("p = f32[2] parameter(0)", "ROOT c = (f32[2]) custom-call(p), custom_call_target=\"x\", output_to_operand_aliasing={ {0,} : (0, {}) }"),
    "parameter replication": entry("ROOT p = (f32[], f32[]) parameter(0), parameter_replication={true,false}"),
    # Headers.
    "header in any order": entry("p = f32[2] parameter(0)", "ROOT t = tuple(p, p)", header=", replica_count=1, num_partitions=2, buffer_donor={(0,{})}, input_output_alias={{1}:(0,{},may-alias)}, is_scheduled=false"),
    "tables in the header": entry("ROOT p = f32[2] parameter(0)", header=", debug_attributes={ {\"b\"}: {callback_id=0,log_mode=default}, {\"a\"}: ({partitioned=true},{op_id=3}) }, origin_recovery_table={ {\"y\"}: {\"x\"} {\"w\"}: {\"x\"}, \"HloModule r ENTRY q { ROOT p = s32[] parameter(0) }\" }"),
    "many parameters": entry(*(f"p{n} = f32[] parameter({n})" for n in range(7)), "ROOT t = tuple(p0, p1, p2, p3, p4, p5, p6)"),
    "stack frames": 'HloModule m\n\nFileNames 1 "a.py" 2 "b.py" FunctionNames 1 "f" 2 "g"\nFileLocations 1 {file_name_id=2 function_name_id=2 line=1 end_line=1 column=2 end_column=3} 2 {file_name_id=1, function_name_id=1, line=7, end_line=7, column=8, end_column=9}\nStackFrames 1 {file_location_id=1 parent_frame_id=1} 2 {file_location_id=2 parent_frame_id=2} 3 {file_location_id=2 parent_frame_id=1}\nENTRY e { p = f32[] parameter(0), metadata={op_name="p" stack_frame_id=3} ROOT n = negate(p), metadata={op_name="n" stack_frame_id=2} }',
    "frames without tables": entry('ROOT p = f32[] parameter(0), metadata={op_name="p" stack_frame_id=3}'),
    # Constants.
    "floats": entry("a = f32[6] constant({1, 0.1, 1e-45, 16777217, -0.0, 3.14159274})", "b = f64[2] constant({0.1, 1e300})", "c = bf16[3] constant({0.1, 3e38, 1e-40})", "d = f16[3] constant({0.1, 65504, 1e-7})", "ROOT t = tuple(a, b, c, d)"),
    "small floats": entry("a = f8e5m2[2] constant({0.1, 57344})", "b = f8e4m3fn[2] constant({0.1, 448})", "c = f8e4m3b11fnuz[2] constant({-0.0, 30})", "d = f4e2m1fn[2] constant({0.3, 6})", "f = f8e3m4[2] constant({0.1, 15.5})", "g = f8e8m0fnu[2] constant({3, 0.5})", "ROOT t = tuple(a, b, c, d, f, g)"),
    "not numbers": entry("a = f32[4] constant({nan, -nan, nan(0x123), -inf})", "b = bf16[2] constant({nan(0x7f), inf})", "c = c64[3] constant({(nan, 1), (1, inf), (-0.5, 2)})", "ROOT t = tuple(a, b, c)"),
    "integers": entry("a = u64[2] constant({18446744073709551615, -1})", "b = s64[1] constant({18446744073709551615})", "c = s4[2] constant({-8, 7})", "d = pred[3] constant({true, 0, 7})", "f = pred[] constant(1)", "ROOT t = tuple(a, b, c, d, f)"),
    "nested braces": entry("a = s32[2,1,2] constant({{{1,2}},{{3,4}}})", "b = s32[1,1,1,2] constant({ {{ {1, 2} }} })", "c = s32[0,2] constant({})", "d = s32[2,0] constant({{},{}})", "ROOT t = tuple(a, b, c, d)"),
    "large constants": entry("a = s32[11] constant({1,2,3,4,5,6,7,8,9,10,11})", "b = (s32[], f32[2]) constant((1, {2, 3}))", "ROOT t = tuple(a, b)"),
    "a number without braces": entry("a = f32[2,2] constant(3)", "b = f32[100] constant(3)", "ROOT t = tuple(a, b)"),
    "literals of custom calls": entry('a = f32[] custom-call(), custom_call_target="x", literal=s32[ 2 ]{0} {1,2}', 'ROOT b = f32[] custom-call(), custom_call_target="x", literal=(f32[] 0.10, pred[2]{0} {true, 0})'),
    # Shardings.
    "sharding of a tuple": entry("p = f32[4] parameter(0)", "ROOT t = tuple(p, p, p, p, p, p), sharding={replicated}"),
    "shardings": entry("a = f32[4,4] parameter(0), sharding={devices=[2,2]<=[2,2]T(0,1)}", "b = f32[4,4] parameter(1), sharding={devices=[2,1,2]3,2,1,0 last_tile_dim_replicate}", "c = f32[4,4] parameter(2), sharding={devices=[1,1,2]<=[2] last_tile_dims={manual}}", "d = f32[4] parameter(3), sharding={maximal device=1 metadata={op_name=\"x\"}}", "f = f32[4] parameter(4), sharding={shard_as 3 replicated}", "ROOT t = () tuple(), sharding={}"),
    "shardings of a mesh": entry("a = f32[4,4] parameter(0), sharding={mesh['x'=2,'y'=2], [{'x'},{'y', ?}]}", "b = f32[4] parameter(1), sharding={mesh['x'=4], [{'x':(1)2}], replicated={'x':(2)2}}", "ROOT c = f32[4] parameter(2), sharding={mesh['x'=2,'y'=2], device_ids=(3,2,1,0), [{}], unreduced=max{'x'}}"),
    # Asynchronous operations.
    "short async operations": entry("p = f32[8] parameter(0)", "s = ((f32[8]), f32[4], s32[]) slice-start(p), slice={[0:4]}", "u = ((f32[8]), f32[4], s32[]) slice-update(s)", "ROOT d = f32[4] slice-done(u)"),
    "long async operations": entry("p = f32[8] parameter(0)", "s = ((f32[8]), f32[4], s32[]) async-start(p), calls=c, metadata={op_name=\"s\"}", "ROOT d = f32[4] async-done(s), calls=c", before="c { q = f32[8] parameter(0) ROOT x = f32[4] slice(q), slice={[0:4]} }\n"),
    "async on a thread": entry("p = f32[8] parameter(0)", "s = ((f32[8]), f32[8], s32[]) call-start(p), to_apply=c, async_execution_thread=\"t\"", "ROOT d = f32[8] call-done(s)", before="c { q = f32[8] parameter(0) ROOT n = negate(q) }\n"),
    "async through a loop": entry("p = f32[8] parameter(0)", "s = ((f32[8]), f32[8], s32[]) custom-call-start(p), custom_call_target=\"x\"", "t = tuple(s)", "w = while(t), condition=c, body=b", "g = get-tuple-element(w), index=0", "ROOT d = f32[8] custom-call-done(g)", before="c { q = (((f32[8]), f32[8], s32[])) parameter(0) ROOT k = pred[] constant(false) }\nb { q = (((f32[8]), f32[8], s32[])) parameter(0) g = get-tuple-element(q), index=0 u = ((f32[8]), f32[8], s32[]) custom-call-update(g) ROOT t = tuple(u) }\n"),
    # Shapes that XLA knows better.
    "transfers": entry("t = after-all()", "p = f32[2] parameter(0)", "s = (f32[2], u32[], token[]) send(p, t), channel_id=1", "d = token[] send-done(s), channel_id=1", "r = (f32[3]) recv(t), channel_id=2", "q = (f32[3], token[]) recv-done(r), channel_id=2", "i = (f32[4]) infeed(t)", "o = token[] outfeed(p, t)", "ROOT x = tuple(d, q, i, o)"),
    "dependencies": entry("p = f32[2] parameter(0)", "t = after-all(token[] after-all())", "a = add-dependency(p, t)", "r = replica-id()", "ROOT x = tuple(a, r, partition-id())"),
    "constants are not packed": entry("a = s4[2]{0:E(4)} constant({1, 2})", "ROOT b = s4[2]{0:E(4)} copy(a)"),
}  # fmt: skip

REFUSED = {
    "blank before `=` of an attribute": entry("p = f32[] parameter(0)", "ROOT n = f32[] negate(p), metadata ={}"),
    "no blank before `=`": entry("p= f32[] parameter(0)"),
    "shape that cannot be inferred": entry("p = f32[2] parameter(0)", "ROOT r = reshape(p)"),
    "shapes that differ": entry("p = f32[2] parameter(0)", "q = f32[3] parameter(1)", "ROOT r = add(p, q)"),
    "inline with an attribute it needs": entry("p = f32[2] parameter(0)", "ROOT r = negate(iota())"),
    "operand that is not there": entry("p = f32[2] parameter(0)", "ROOT r = add(p, max)"),
    "computation that comes later": entry("p = f32[] parameter(0)", "ROOT r = call(p), to_apply=f") + "f { ROOT q = f32[] parameter(0) }\n",
    "type as a name": entry("f32 = f32[] parameter(0)"),
    "name of another kind": entry("__x = f32[] parameter(0)"),
    "name that is taken": entry("p = f32[] parameter(0)", "p = f32[] parameter(1)"),
    "number too large": entry("ROOT c = u8[] constant(256)"),
    "float too large": entry("ROOT c = f16[] constant(65520)"),
    "too many elements": entry("ROOT c = s32[2] constant({1, 2, 3})"),
    "too few elements": entry("ROOT c = s32[2,2] constant({{1, 2}, {3}})"),
    "too many braces": entry("ROOT c = s32[2] constant({{1, 2}})"),
    "payload that is too large": entry("ROOT c = bf16[] constant(nan(0x80))"),
    "comment that never ends": entry("ROOT p = f32[] parameter(0) /* x"),
    "string that never ends": entry('ROOT p = f32[] parameter(0), metadata={op_name="x}'),
    "attribute that is missing": entry("p = f32[2] parameter(0)", "ROOT r = f32[2] broadcast(p)"),
    "attribute given twice": entry("p = f32[2] parameter(0), sharding={replicated}, sharding={replicated}"),
    "devices that do not fit": entry("ROOT p = f32[4] parameter(0), sharding={devices=[2,2]<=[3]}"),
    "axis that is not there": entry("ROOT p = f32[4] parameter(0), sharding={mesh['x'=2], [{'y'}]}"),
    "window that does not fit": entry("p = f32[4] parameter(0)", "z = f32[] constant(0)", "ROOT r = f32[2] reduce-window(p, z), window={size=2 stride=2x2}, to_apply=add", before=_ADD),
    "labels that do not fit": entry("p = f32[1,2,1] parameter(0)", "ROOT r = f32[1,2,1] convolution(p, p), dim_labels=b0f_0io->bf"),
    "metadata of another kind": entry("ROOT p = f32[] parameter(0), metadata={op_nam=\"x\"}"),
    "reshape to other elements": entry("p = f32[4] parameter(0)", "ROOT r = f32[5] reshape(p)"),
    "operands that are missing": entry("p = f32[4] parameter(0)", "ROOT r = f32[4] add(p)"),
    "start that is no tuple": entry("p = f32[4] parameter(0)", "ROOT s = f32[4] negate-start(p)"),
    "done of another": entry("p = f32[4] parameter(0)", "s = ((f32[4]), f32[4], s32[]) negate-start(p)", "ROOT d = f32[4] abs-done(s)"),
    "start without a computation": entry("p = f32[8] parameter(0)", "ROOT s = ((f32[8]), f32[8], s32[]) async-start(p)"),
    "convolution of one operand": entry("p = f32[1,2,1] parameter(0)", "ROOT r = convolution(p), dim_labels=b0f_0io->b0f"),
    "channel of another": entry("t = after-all()", "r = (f32[3]) recv(t), channel_id=2", "ROOT d = (f32[3], token[]) recv-done(r), channel_id=1"),
    "branches by a float": entry("p = f32[] parameter(0)", "ROOT r = f32[] conditional(p, p), branch_computations={f}", before="f { ROOT q = f32[] parameter(0) }\n"),
    "constraints that do not fit": entry("p = f32[4] parameter(0)", 'ROOT r = f32[4] custom-call(p), custom_call_target="x", operand_layout_constraints={f32[5]{0}}'),
    "ids without a channel": entry("p = f32[4] parameter(0)", "ROOT r = f32[4] all-reduce(p), use_global_device_ids=true, to_apply=add", before=_ADD),
    "result of another shape": "HloModule m ENTRY e (p: f32[2]) -> f32[3] { ROOT p = f32[2] parameter(0) }",
    "two entries": "HloModule m ENTRY a { ROOT p = f32[] parameter(0) } ENTRY b { ROOT p = f32[] parameter(0) }",
    "two roots": entry("ROOT p = f32[] parameter(0)", "ROOT q = f32[] parameter(1)"),
    "brace too many": entry("ROOT p = f32[] parameter(0)") + "}",
    "nothing": "HloModule m",
    "no name": "HloModule , is_scheduled=true ENTRY e { ROOT p = f32[] parameter(0) }",
    "alias of another kind": entry("ROOT p = f32[] parameter(0)", header=", input_output_alias={ {}: (0, {}, perhaps) }"),
}  # fmt: skip
