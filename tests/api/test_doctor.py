"""What is here: versions as pip says, folders as the environment names them."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from msgspec.structs import replace

import hlomem
from hlomem.api.doctor import CORE, OPTIONAL, examine
from hlomem.jax.target_kinds import examine_targets
from hlomem.report.screens.health_text import draw_health
from hlomem.report.screens.text import plain


def test_versions_are_those_that_are_installed() -> None:
    health = examine(environment={})
    assert health.version == hlomem.__version__
    assert {row.name: row.version for row in health.core} == {name: version(name) for name in CORE}
    assert [row.name for row in health.optional] == list(OPTIONAL)


def test_folders_are_those_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "m-buffer-assignment.txt").write_text("BufferAssignment:\n")
    cache = tmp_path / "no such folder"
    health = examine(
        environment={
            "XLA_FLAGS": f"--xla_dump_hlo_as_text --xla_dump_to={tmp_path}",
            "JAX_COMPILATION_CACHE_DIR": str(cache),
        }
    )
    assert [(place.variable, place.path, place.count) for place in health.places] == [
        ("XLA_FLAGS", str(tmp_path), 1),
        ("JAX_COMPILATION_CACHE_DIR", str(cache), None),
    ]
    screen = plain(draw_health(health, 300))
    assert "1 found" in screen
    assert "does not exist yet" in screen


def test_what_is_missing_comes_with_its_command() -> None:
    health = examine(examine_targets(), {})
    assert health.targets
    screen = plain(draw_health(health, 200))
    for target in health.targets:
        assert target.name in screen
        assert target.install in screen
    assert "--xla_dump_to=" in screen


@pytest.mark.parametrize("width", [60, 80, 120])
def test_names_of_the_environment_are_data(width: int) -> None:
    health = examine(environment={"JAX_COMPILATION_CACHE_DIR": "/x\x1b[31m\u202e"})
    assert "\x1b[31m" not in plain(draw_health(health, width))


@pytest.mark.parametrize(
    ("kernels", "uses", "says"),
    [
        (("hlomem.assign._heap", "hlomem.dump._lines"), True, "native kernels: heap, lines"),
        (("hlomem.assign._heap",), False, "heap; unused, as HLOMEM_PURE is set"),
        ((), True, "no native kernels: pure Python"),
    ],
)
def test_the_kernels_that_were_built_are_named(
    kernels: tuple[str, ...], uses: bool, says: str
) -> None:
    health = replace(examine(environment={}), kernels=kernels, uses_kernels=uses)
    screen = plain(draw_health(health, 120))
    assert says in screen
    assert ("HLOMEM_NATIVE=1 pip install" in screen) == (not kernels)
