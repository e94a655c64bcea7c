"""The order in which the GPU compiler made computations before fusion, from their names."""

from __future__ import annotations

from tests.analysis.programs import comparator
from tests.history.orders import created_names


def _created(text: str) -> list[str]:
    return created_names("gpu", text)


def _sums(names: str) -> str:
    """A module in which every name is that of a reduction's computation."""
    text = "HloModule sums, is_scheduled=true\n"
    for number, name in enumerate(names.split()):
        text += f"""
%{name} (l_{number}: f32[], r_{number}: f32[]) -> f32[] {{
  %l_{number} = f32[] parameter(0)
  %r_{number} = f32[] parameter(1)
  ROOT %add.{number} = f32[] add(%l_{number}, %r_{number})
}}
"""
    text += "\nENTRY %main.9 (a.1: f32[8]) -> f32[8] {\n  %a.1 = f32[8]{0} parameter(0)\n"
    text += "  %zero = f32[] constant(0)\n"
    for number, name in enumerate(names.split()):
        text += f"  %sum.{number} = f32[] reduce(%a.1, %zero), dimensions={{0}}, to_apply=%{name}\n"
    return text + "  ROOT %n = f32[8]{0} negate(%a.1)\n}\n"


def test_what_is_called_twice_is_cloned_computation_by_computation() -> None:
    names = "region_0.1 region_1.2 region_0.1.clone region_0.1.clone.1 region_1.2.clone"
    assert _created(_sums(names)) == [
        "region_0.1",
        "region_1.2",
        "main.9",
        "region_0.1.clone",
        "region_0.1.clone.1",
        "region_1.2.clone",
    ]


def test_what_a_pass_made_is_cloned_after_what_the_program_came_with() -> None:
    names = "region_0.1_rw_wrapper region_1.2 region_0.1_rw_wrapper.clone region_1.2.clone"
    assert _created(_sums(names))[-2:] == ["region_1.2.clone", "region_0.1_rw_wrapper.clone"]


def _loops(sums_of: dict[str, str]) -> str:
    """A module with a loop for each name, whose body applies the sums given."""
    text = _sums(" ".join(sums_of.values()))
    bodies = calls = ""
    for number, (name, sums) in enumerate(sums_of.items()):
        bodies += f"""
%{name} (v.{number}: f32[8]) -> f32[8] {{
  %v.{number} = f32[8]{{0}} parameter(0)
  %start.{number} = f32[] constant(0)
"""
        for place, sum_name in enumerate(sums.split()):
            bodies += f"""\
  %sum_{number}.{place} = f32[] reduce(%v.{number}, %start.{number}), dimensions={{0}}, \
to_apply=%{sum_name}
"""
        bodies += f"""\
  ROOT %negate.{number} = f32[8]{{0}} negate(%v.{number})
}}

%until.{number} (w.{number}: f32[8]) -> pred[] {{
  %w.{number} = f32[8]{{0}} parameter(0)
  ROOT %end.{number} = pred[] constant(true)
}}
"""
        calls += f"""\
  %while.{number} = f32[8]{{0}} while(%a.1), condition=%until.{number}, body=%{name}
"""
    main = text.index("\nENTRY")
    head, tail = text[:main], text[main:].split("  %sum.0")[0]
    return head + bodies + tail + calls + "  ROOT %n = f32[8]{0} negate(%a.1)\n}\n"


def test_a_loop_is_cloned_with_all_it_calls() -> None:
    text = _loops(
        {
            "region_2.3": "region_0.1 region_1.2",
            "region_2.3.clone.2": "region_0.1.clone.1 region_1.2.clone",
            "region_2.3.clone.3": "region_0.1.clone.2 region_1.2.clone.1",
            "region_4.5": "region_0.1.clone",
        }
    )
    assert _created(text)[-7:] == [
        "region_0.1.clone",
        "region_2.3.clone.2",
        "region_0.1.clone.1",
        "region_1.2.clone",
        "region_2.3.clone.3",
        "region_0.1.clone.2",
        "region_1.2.clone.1",
    ]


def test_loops_that_stayed_two_are_older_than_what_they_call() -> None:
    sums_of = {"region_2.3": "region_0.1", "region_2.3.clone": "region_0.1.clone region_1.2"}
    assert _created(_loops(sums_of))[-2:] == ["region_2.3.clone", "region_0.1.clone"]


def test_within_a_loop_what_the_program_applies_is_cloned_first() -> None:
    text = _loops(
        {
            "region_2.3": "made region_0.1",
            "region_2.3.clone.1": "made.clone region_0.1.clone",
        }
    )
    assert _created(text)[-3:] == ["region_2.3.clone.1", "region_0.1.clone", "made.clone"]


def test_comparators_of_top_k_are_older_and_sums_of_products_younger_than_others() -> None:
    names = "scalar_add_computation region_0.1_rw_wrapper compare-greater-than.1 region_0.1"
    assert _created(_sums(names))[-3:] == [
        "compare-greater-than.1",
        "region_0.1_rw_wrapper",
        "scalar_add_computation",
    ]


def test_a_region_that_lost_its_number_comes_after_the_one_before_it() -> None:
    names = "region_4.0 region_6.5 region_3.2 region_1.1"
    order = ["region_1.1", "region_3.2", "region_4.0", "region_6.5", "main.9"]
    assert _created(_sums(names)) == order


def test_what_passes_made_is_cloned_in_the_order_it_was_made_in() -> None:
    names = "b.clone a.clone.2 a.clone.10 a.clone a b region_0.1"
    assert _created(_sums(names))[2:] == [
        "a",
        "b",
        "a.clone",
        "a.clone.2",
        "a.clone.10",
        "b.clone",
    ]


def test_a_branch_is_cloned_with_what_is_called_twice() -> None:
    branches = "".join(
        f"""
%{name} (x.{number}: f32[8]) -> f32[8] {{
  %x.{number} = f32[8]{{0}} parameter(0)
  ROOT %negate.{number} = f32[8]{{0}} negate(%x.{number})
}}
"""
        for number, name in enumerate(["region_1.2", "region_1.2.clone"])
    )
    text = _sums("region_0.1 region_3.4 region_3.4.clone region_0.1.clone")
    text = text.replace("\nENTRY", branches + "\nENTRY").replace(
        "ROOT %n = f32[8]{0} negate(%a.1)",
        "%p = pred[] constant(true)\n  ROOT %c = f32[8]{0} conditional(%p, %a.1, %a.1), "
        "true_computation=%region_1.2, false_computation=%region_1.2.clone",
    )
    assert _created(text)[-3:] == ["region_0.1.clone", "region_1.2.clone", "region_3.4.clone"]


def test_sums_of_split_products_are_younger_than_clones() -> None:
    names = "dot.reduce_sub_computation region_0.1 region_0.1.clone"
    assert _created(_sums(names))[-2:] == ["region_0.1.clone", "dot.reduce_sub_computation"]


def test_the_partitioner_made_clones_in_the_order_of_their_channels() -> None:
    text = _sums("add.1.clone region_0.1.clone region_2.3.clone")
    channels = {"add.1.clone": 7, "region_0.1.clone": 5, "region_2.3.clone": 9}
    for name, channel in channels.items():
        text = text.replace(
            f"reduce(%a.1, %zero), dimensions={{0}}, to_apply=%{name}\n",
            f"all-reduce(%zero), channel_id={channel}, replica_groups={{}}, to_apply=%{name}\n",
        )
    assert _created(text)[-3:] == ["region_0.1.clone", "add.1.clone", "region_2.3.clone"]


def test_comparators_of_stable_sorts_are_made_between_rewriters_and_flattening() -> None:
    text = _sums("region_0.1 region_0.1_rw_wrapper region_0.1.clone")
    comparators = ["region_5.6.clone", "region_5.6.clone.clone"]
    text = text.replace("\nENTRY", "".join(map(comparator, comparators)) + "\nENTRY")
    for name in comparators:
        sort = f"  %s.{name} = f32[8]{{0}} sort(%a.1), dimensions={{0}}, to_apply=%{name}\n"
        text = text.replace("  ROOT %n =", sort + "  ROOT %n =")
    assert _created(text)[-4:] == [
        "region_0.1_rw_wrapper",
        "region_5.6.clone",
        "region_0.1.clone",
        "region_5.6.clone.clone",
    ]


SHARED = """\
HloModule shared, is_scheduled=true

%region_0.1.clone (l: f32[], r: f32[]) -> f32[] {
  %l = f32[] parameter(0)
  %r = f32[] parameter(1)
  ROOT %sum = f32[] add(%l, %r)
}

%region_1.2.clone (p: (f32[8])) -> f32[] {
  %p = (f32[8]{0}) parameter(0)
  %x = f32[8]{0} get-tuple-element(%p), index=0
  %z = f32[] constant(0)
  ROOT %one = f32[] reduce(%x, %z), dimensions={0}, to_apply=%region_0.1.clone
}

%region_2.3.clone (q: (f32[8])) -> f32[] {
  %q = (f32[8]{0}) parameter(0)
  %y = f32[8]{0} get-tuple-element(%q), index=0
  %o = f32[] constant(0)
  ROOT %two = f32[] reduce(%y, %o), dimensions={0}, to_apply=%region_0.1.clone
}

ENTRY %main.4 (a: f32[8], b: pred[]) -> f32[] {
  %a = f32[8]{0} parameter(0)
  %b = pred[] parameter(1)
  %t = (f32[8]{0}) tuple(%a)
  ROOT %c = f32[] conditional(%b, %t, %t), true_computation=%region_1.2.clone, \
false_computation=%region_2.3.clone
}
"""


def test_what_two_clones_call_is_listed_once() -> None:
    assert sorted(_created(SHARED)) == [
        "main.4",
        "region_0.1.clone",
        "region_1.2.clone",
        "region_2.3.clone",
    ]
