"""Rows over machines and meshes: what is a row, and what says why it is not."""

from __future__ import annotations

from math import prod

import pytest

from hlomem.base.errors import CommandError
from hlomem.jax.fit_cells import factorizations, make_cells
from hlomem.jax.target_kinds import parse_target

SLICE = parse_target("tpu-v5e:4x4")


def _targets(base: str, **rows: list[object]) -> list[str]:
    return [
        cell.problem if cell.target is None else cell.target.name
        for cell in make_cells(parse_target(base), rows)
    ]


def test_another_chip_has_as_many_in_its_usual_slice() -> None:
    assert _targets("tpu-v5e:4x4", chip=["v5e", "v6e", "v5p", "7x", "h100"]) == [
        "tpu-v5e:4x4",
        "tpu-v6e:4x4",
        "tpu-v5p:2x2x4",
        "tpu-7x:2x2x4",
        "cuda-h100:16",
    ]
    assert _targets("cpu", chip=["v5e", "h100"]) == ["tpu-v5e:2x2", "cuda-h100:1"]


def test_topologies_slices_and_targets_make_rows() -> None:
    assert _targets("tpu-v5e:4x4", topology=[8, "2x2"], slices=[1, 2]) == [
        "tpu-v5e:2x4",
        "tpu-v5e:2x4@2",
        "tpu-v5e:2x2",
        "tpu-v5e:2x2@2",
    ]
    assert _targets("tpu-v5e:4x4", target=["tpu-v4", "cpu"]) == ["tpu-v4:2x2x1", "cpu"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"chip": ["v9"]}, "no compiler for a chip `v9`"),
        ({"chip": ["v5p"], "topology": ["4x"]}, "`4x` is no topology of a TPU"),
        ({"slices": [0]}, "`slices=0` is no number of slices"),
        ({"slices": [2], "chip": ["h100"]}, "cuda-h100 has no slices"),
        ({"target": ["cpu"], "chip": ["v5e"]}, "give one or the other"),
        ({"target": ["gpu"]}, "no target `gpu`"),
    ],
)
def test_a_machine_that_is_not_there_is_a_row_with_a_reason(
    rows: dict[str, list[object]], said: str
) -> None:
    [cell] = make_cells(SLICE, rows)
    assert cell.target is None
    assert said in cell.problem
    assert "\n" not in cell.problem


def test_auto_is_every_mesh_of_a_slice() -> None:
    cells = make_cells(SLICE, {"mesh": ["auto"]}, ["data", "fsdp", "tensor"])
    meshes = [cell.settings["mesh"] for cell in cells]
    assert len({tuple(mesh.values()) for mesh in meshes}) == len(meshes) == 15
    assert all(prod(mesh.values()) == 16 for mesh in meshes)
    assert list(meshes[0]) == ["data", "fsdp", "tensor"]
    assert cells[0].own == {"mesh": "16x1x1"}


def test_the_first_axis_goes_over_the_slices() -> None:
    cells = make_cells(parse_target("tpu-v4:2x2x1@2"), {"mesh": ["auto"]}, ["data", "model"])
    assert [cell.own["mesh"] for cell in cells] == ["8x1", "4x2", "2x4"]


@pytest.mark.parametrize(
    ("mesh", "said"),
    [
        ("4x8", "it has 32 devices, tpu-v5e:4x4 has 16"),
        ("4x2x2", "it has 3 axes, not those of data, model"),
        ("wide", "`wide` is no mesh: give sizes, as in 4x4, or auto"),
        ("0x4", "it has 0 devices"),
    ],
)
def test_an_impossible_mesh_is_a_row_with_a_reason(mesh: str, said: str) -> None:
    impossible, possible = make_cells(SLICE, {"mesh": [mesh, "4x4"]}, ["data", "model"])
    assert said in impossible.problem
    assert possible.settings == {"mesh": {"data": 4, "model": 4}}


def test_a_mesh_needs_the_names_of_its_axes_and_a_table_an_end() -> None:
    with pytest.raises(CommandError, match="give them by --axes"):
        make_cells(SLICE, {"mesh": ["auto"]})
    with pytest.raises(CommandError, match="more than 1000 rows"):
        make_cells(SLICE, {"a": list(range(40)), "b": list(range(40))})


def test_factorizations_are_complete() -> None:
    assert sorted(factorizations(6, 2)) == [(1, 6), (2, 3), (3, 2), (6, 1)]
    assert len(list(factorizations(16, 4))) == 35
