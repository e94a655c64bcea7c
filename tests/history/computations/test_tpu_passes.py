"""Computations by age, as libtpu makes them; names as in its modules."""

from __future__ import annotations

from tests.history.orders import created_names

_ADDER = """\
%{name} (x.{n}: f32[], y.{n}: f32[]) -> f32[] {{
  %x.{n} = f32[] parameter(0)
  %y.{n} = f32[] parameter(1)
  ROOT %s.{n} = f32[] add(%x.{n}, %y.{n})
}}
"""
_BODY = """\
%{name} (p.{n}: f32[8]) -> f32[8] {{
  %p.{n} = f32[8] parameter(0)
  ROOT %r.{n} = f32[8] negate(%p.{n})
}}
"""
MODULE = (
    "HloModule m, is_scheduled=true\n\n"
    + _ADDER.format(name="slice.2.reduce_sub_computation", n=1)
    + "\n"
    + _ADDER.format(name="region_0.1", n=2)
    + "\n"
    + _BODY.format(name="fused_computation.3.clone.1", n=3)
    + "\n"
    + _BODY.format(name="bitcast_fusion", n=4)
    + "\n"
    + _BODY.format(name="fused_computation.2", n=5)
    + """
%wide.region_1.2.sunk (wide.arg.1: (s32[], f32[8])) -> (s32[], f32[8]) {
  %wide.arg.1 = (s32[], f32[8]) parameter(0)
  %g.0 = s32[] get-tuple-element(%wide.arg.1), index=0
  %g.1 = f32[8] get-tuple-element(%wide.arg.1), index=1
  %f.1 = f32[8] fusion(%g.1), kind=kLoop, calls=%fused_computation.3.clone.1
  ROOT %t.1 = (s32[], f32[8]) tuple(%g.0, %f.1)
}

%wide.region_2.3 (wide.arg.2: (s32[], f32[8])) -> pred[] {
  %wide.arg.2 = (s32[], f32[8]) parameter(0)
  %g.2 = s32[] get-tuple-element(%wide.arg.2), index=0
  ROOT %lt = pred[] compare(%g.2, %g.2), direction=LT
}

%async_computation (param.9: f32[8]) -> f32[4] {
  %param.9 = f32[8] parameter(0)
  ROOT %slice.9 = f32[4] slice(%param.9), slice={[0:4]}
}

ENTRY %main.4 (a.1: f32[8], i.1: s32[]) -> f32[8] {
  %a.1 = f32[8] parameter(0)
  %i.1 = s32[] parameter(1)
  %zero = f32[] constant(0)
  %slice-start = ((f32[8]), f32[4], s32[]) async-start(%a.1), calls=%async_computation
  %slice-done = f32[4] async-done(%slice-start)
  %first = f32[] reduce(%slice-done, %zero), dimensions={0}, to_apply=%region_0.1
  %second = f32[] reduce(%slice-done, %first), dimensions={0}, \
to_apply=%slice.2.reduce_sub_computation
  %f.2 = f32[8] fusion(%a.1), kind=kLoop, calls=%fused_computation.2
  %f.3 = f32[8] fusion(%f.2), kind=kLoop, calls=%bitcast_fusion
  %start = (s32[], f32[8]) tuple(%i.1, %f.3)
  %while.1 = (s32[], f32[8]) while(%start), condition=%wide.region_2.3, body=%wide.region_1.2.sunk
  ROOT %end = f32[8] get-tuple-element(%while.1), index=1
}
"""
)


def test_computations_come_in_the_order_of_the_passes() -> None:
    order = created_names("tpu", MODULE)
    assert order == [
        "region_0.1",
        "main.4",
        "slice.2.reduce_sub_computation",
        "fused_computation.2",
        "bitcast_fusion",
        "wide.region_2.3",
        "fused_computation.3.clone.1",
        "wide.region_1.2.sunk",
        "async_computation",
    ]


SHARED_REDUCERS = (
    "HloModule m, is_scheduled=true\n\n"
    + "\n".join(
        _ADDER.format(name=name, n=n)
        for n, name in enumerate(
            ("add_F32.2", "region_0.1", "region_0.1.clone", "region_0.1.clone.1", "add.9"), 2
        )
    )
    + "\n"
    + _BODY.format(name="fused_computation", n=8)
    + """
%branch.2 (q.1: f32[8]) -> f32[] {
  %q.1 = f32[8] parameter(0)
  %zero.1 = f32[] constant(0)
  ROOT %copied = f32[] reduce(%q.1, %zero.1), dimensions={0}, to_apply=%region_0.1.clone.1, \
metadata={op_name="f/sum"}
}

%branch.3 (q.2: f32[8]) -> f32[] {
  %q.2 = f32[8] parameter(0)
  ROOT %zero.2 = f32[] constant(0)
}

ENTRY %main.4 (a.1: f32[8], i.1: s32[]) -> f32[] {
  %a.1 = f32[8] parameter(0)
  %i.1 = s32[] parameter(1)
  %zero = f32[] constant(0)
  %f.1 = f32[8] fusion(%a.1), kind=kLoop, calls=%fused_computation
  %one = f32[] reduce(%f.1, %zero), dimensions={0}, to_apply=%region_0.1, \
metadata={op_name="f/sum"}
  %two = f32[] reduce(%f.1, %one), dimensions={0}, to_apply=%region_0.1.clone, \
metadata={op_name="f/sum"}
  %three = f32[] reduce(%f.1, %two), dimensions={0}, to_apply=%add_F32.2
  %four = f32[] reduce(%f.1, %three), dimensions={0}, to_apply=%add.9
  %five = f32[] conditional(%i.1, %f.1, %f.1), branch_computations={%branch.2, %branch.3}
  ROOT %six = f32[] add(%four, %five)
}
"""
)


def test_what_a_copied_operation_applies_is_copied_after_fusion() -> None:
    order = created_names("tpu", SHARED_REDUCERS)
    assert order == [
        "region_0.1",
        "branch.2",
        "branch.3",
        "main.4",
        "add_F32.2",
        "region_0.1.clone",
        "add.9",
        "fused_computation",
        "region_0.1.clone.1",
    ]
