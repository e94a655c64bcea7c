"""Shardings read from their texts: by names, by Shardy's words, by devices."""

from __future__ import annotations

import pytest

from hlomem.hlo.sharding import (
    Axis,
    Mesh,
    group_axes,
    mesh_of_devices,
    parse_meshes,
    parse_sharding,
    parse_spec,
    split_tuple,
)

MESH = Mesh((Axis("data", 4), Axis("model", 2)))


@pytest.mark.parametrize(
    ("text", "spec", "replication"),
    [
        ("{mesh['data'=4,'model'=2], [{'data'}, {}]}", "P('data')", 2),
        ("{mesh['data'=4,'model'=2], [{}, {'data', 'model'}]}", "P(None, ('data', 'model'))", 1),
        ("{mesh['data'=4,'model'=2], [{'data':(2)2}, {}]}", "P('data:(2)2')", 4),
        ("{mesh['data'=4,'model'=2], replicated}", "P()", 8),
        ("{replicated}", "P()", 8),
        ('#sdy.sharding<@mesh, [{"data"}, {}]>', "P('data')", 2),
        ("{devices=[4,1,2]<=[8] last_tile_dim_replicate}", "P('data')", 2),
        ("{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}", "P('model')", 4),
        ("{devices=[1,8]<=[8]}", "P(None, ('data', 'model'))", 1),
        ("{devices=[2,4]0,2,4,6,1,3,5,7}", "P('model', 'data')", 1),
    ],
)
def test_axes_are_told_by_the_names_of_the_mesh(text: str, spec: str, replication: int) -> None:
    found = parse_sharding(text, 2, MESH, {"mesh": MESH})
    assert found is not None
    assert (found.spec(), found.replication) == (spec, replication)


@pytest.mark.parametrize(
    "text",
    [
        "{manual}",
        "{maximal device=0}",
        "{mesh['data'=4,'model'=2], [{'data'}, {}], manual={'model'}}",
        "{devices=[4,2]<=[9]}",
        "{devices=[4,2]<=[2,4]T(0,0)}",
        "{devices=[2,2]0,1,2,9}",
        "{devices=[]<=[8]}",
        "{",
        "",
    ],
)
def test_what_does_not_tell_a_split_is_unknown(text: str) -> None:
    assert parse_sharding(text, 2, MESH, {}) is None


def test_devices_without_a_mesh_get_axes_without_names() -> None:
    found = parse_sharding("{devices=[2,2]0,1,2,3}", 2)
    assert found is not None
    assert found.spec() == "P('axis 0', 'axis 1')"
    assert found.shard((16, 17)) == (8, 9)


def test_meshes_of_a_module_are_read_by_name() -> None:
    text = '{xla.sdy.meshes={mesh = #sdy.mesh<["data"=4, "model"=2]>, m2 = #sdy.mesh<["a"=2]>}}'
    assert parse_meshes(text) == {"mesh": MESH, "m2": Mesh((Axis("a", 2),))}


def test_a_tuple_has_a_sharding_for_each_part() -> None:
    text = "{{replicated}, {mesh['data'=4], [{'data'}, {}]}, /*index=5*/{devices=[2,2]0,1,2,3}}"
    one, two, three = split_tuple(text)
    assert (one, three) == ("{replicated}", "{devices=[2,2]0,1,2,3}")
    assert two == "{mesh['data'=4], [{'data'}, {}]}"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[2,4]<=[4,2]T(1,0)", ["data"]),
        ("[4,2]<=[8]", ["model"]),
        ("{{0,2,4,6},{1,3,5,7}}", ["data"]),
        ("[1,8]<=[8]", ["data", "model"]),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_1'}", ["model"]),
    ],
)
def test_groups_of_devices_are_axes(text: str, names: list[str]) -> None:
    axes = group_axes(text, MESH)
    assert axes is not None
    assert [axis.name for axis in axes] == names


@pytest.mark.parametrize("text", ["", "{{0,99}}", "[2,4]<=[0,2]", "{{0,3}}", "mesh['x'=4] {'y'}"])
def test_groups_that_follow_no_axes_are_unknown(text: str) -> None:
    assert group_axes(text, MESH) is None


def test_lists_of_devices_tell_a_mesh_without_names() -> None:
    texts = ["{replicated}", "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"]
    mesh = mesh_of_devices([*texts, "{devices=[1,2,4]<=[4,2]T(1,0)}"])
    assert mesh == Mesh((Axis("axis 0", 4), Axis("axis 1", 2)))
    found = parse_sharding("{devices=[1,2,4]<=[4,2]T(1,0)}", 3, mesh)
    assert found is not None
    assert found.spec() == "P(None, 'axis 1', 'axis 0')"


@pytest.mark.parametrize("text", ["P()", "P('data')", "P(None, ('data', 'model'))"])
def test_a_spec_is_read_as_it_is_written(text: str) -> None:
    found = parse_spec(text, MESH)
    assert found is not None
    assert found.spec() == text


@pytest.mark.parametrize("text", ["P('other')", "P(UNCONSTRAINED)", "P('data'}"])
def test_a_spec_of_other_axes_is_none(text: str) -> None:
    assert parse_spec(text, MESH) is None
