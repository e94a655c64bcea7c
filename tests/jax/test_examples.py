"""The factories of examples/jax, each in its framework."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import hlomem.jax
from hlomem.jax.compile.factories import find_factory, make_program
from hlomem.jax.target_kinds import parse_target
from tests.places import ROOT

pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")

EXAMPLES = ROOT / "examples" / "jax"
SETTINGS: dict[str, dict[str, Any]] = {
    "checkpointed": {"length": 32, "width": 64, "layers": 2},
    "gpt": {"size": "tiny", "length": 32, "remat": "dots_saveable"},
    "flax_nnx": {"width": 64, "layers": 2},
    "equinox_step": {"width": 64, "depth": 2},
    "keras_step": {"width": 64, "layers": 2},
}
NEEDS = {
    "checkpointed": [],
    "gpt": [],
    "flax_nnx": ["flax", "optax"],
    "equinox_step": ["equinox", "optax"],
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SETTINGS)


@pytest.mark.filterwarnings("default")  # of frameworks
@pytest.mark.parametrize("name", SETTINGS)
def test_a_factory_gives_a_program_whose_arguments_have_roles(
    name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    for package in NEEDS.get(name, ["keras"]):
        pytest.importorskip(package, reason="`make jax` runs these tests")
    monkeypatch.setattr(sys, "path", list(sys.path))
    request.addfinalizer(lambda: sys.modules.pop(name, None))
    factory = find_factory(f"{EXAMPLES / name}.py:train_step")
    program = make_program(factory, {"batch": 4, **SETTINGS[name]}, parse_target("cpu"))
    memory = hlomem.jax.memory(program.lowered)
    assert {"optimizer state", "batch and inputs"} <= {share.role for share in memory.roles}
    assert program.jaxpr is not None
    assert any(f"{Path(name).name}.py:" in (row.source or "") for row in memory.by("line"))
