"""Computations that the partitioner cloned, by channel and by their place in the program."""

from __future__ import annotations

import pytest

from tests.history.orders import created_names

_ADDER = """\
%{name} ({parameter}.{n}: f32[], y.{n}: f32[]) -> f32[] {{
  %{parameter}.{n} = f32[] parameter(0)
  %y.{n} = f32[] parameter(1)
  ROOT %s.{n} = f32[] add(%{parameter}.{n}, %y.{n})
}}

"""


def _module(calls: str, *adders: tuple[str, str, int]) -> str:
    made = [_ADDER.format(name=name, parameter=base, n=n) for name, base, n in adders]
    return (
        "HloModule m, is_scheduled=true\n\n"
        + "".join(made)
        + f"""\
ENTRY %main.9_spmd (param: f32[8], param.1: s32[8,1]) -> (f32[8], f32[8], f32[8]) {{
  %param = f32[8] parameter(0)
  %param.1 = s32[8,1] parameter(1)
{calls}  ROOT %t = (f32[8], f32[8], f32[8]) tuple(%one, %two, %three)
}}
"""
    )


def _reduced(name: str, applied: str, channel: int) -> str:
    return f"  %{name} = f32[8] all-reduce(%param), channel_id={channel}, to_apply=%{applied}\n"


_SCATTER = """\
  %two = f32[8] scatter(%param, %param.1, %param), update_window_dims={}, \
inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, \
to_apply=%region_1.2.clone
"""


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_a_scatter_comes_before_the_collective_of_a_later_operation(platform: str) -> None:
    calls = _reduced("three", "region_2.3.clone", 2) + _reduced("one", "region_0.1.clone", 1)
    adders = [
        ("region_2.3.clone", "c", 4),
        ("region_1.2.clone", "b", 4),
        ("region_0.1.clone", "a", 4),
    ]
    names = created_names(platform, _module(calls + _SCATTER, *adders))
    clones = [name for name in names if name.endswith(".clone")]
    assert clones == ["region_0.1.clone", "region_1.2.clone", "region_2.3.clone"]


def test_a_channel_that_was_given_anew_moves_no_other_clone() -> None:
    calls = (
        _reduced("one", "region_0.1.clone", 5)
        + _reduced("two", "add.1.clone", 6)
        + _reduced("three", "add.3.clone", 1)
    )
    adders = [("add.1.clone", "x", 2), ("add.3.clone", "x", 4), ("region_0.1.clone", "a", 4)]
    names = created_names("tpu", _module(calls, *adders))
    clones = [name for name in names if name.endswith(".clone")]
    assert clones == ["region_0.1.clone", "add.1.clone", "add.3.clone"]
