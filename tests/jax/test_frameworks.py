"""Training loops of Flax NNX, Equinox, Keras and plain JAX: their steps are seen, with lines."""

from __future__ import annotations

import runpy
from importlib.util import find_spec
from typing import Any

import pytest

import hlomem.jax
from tests.places import ROOT

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
NEEDS = {
    "bare": (),
    "flax_nnx": ("flax", "optax"),
    "equinox": ("equinox", "optax"),
    "keras": ("keras",),
}


@pytest.mark.parametrize("name", NEEDS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_the_step_of_a_framework_is_captured_with_the_users_lines(name: str) -> None:
    missing = [package for package in NEEDS[name] if find_spec(package) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed; `make jax` has them")
    path = ROOT / "examples" / "loops" / f"{name}_loop.py"
    train = runpy.run_path(str(path))["train"]
    with hlomem.jax.captured() as compiles:
        train()
    [step] = [program for program in compiles if program.name == "train_step"]
    assert not step.is_planned
    assert step is compiles.largest
    lines = [row.key for row in step.explanation.by("line")]
    assert any(line.startswith(f"{path}:") for line in lines)
    assert sum(share.size for share in step.explanation.roles) == step.size


def _wrapped(name: str) -> Any:
    """A framework's own Lowered of a small function."""
    x = jax.numpy.zeros((8, 8))
    if name == "nnx":
        nnx: Any = pytest.importorskip("flax.nnx")
        model = nnx.Linear(8, 8, rngs=nnx.Rngs(0))
        return nnx.jit(lambda model, x: model(x).sum()).lower(model, x)
    eqx: Any = pytest.importorskip("equinox")
    model = eqx.nn.Linear(8, 8, key=jax.random.key(0))
    return eqx.filter_jit(lambda model, x: jax.vmap(model)(x).sum()).lower(model, x)


@pytest.mark.parametrize("name", ["nnx", "equinox"])
def test_the_stages_of_a_framework_are_those_of_jax(name: str) -> None:
    lowered = _wrapped(name)
    needs = hlomem.jax.memory(lowered).needs
    assert needs == hlomem.jax.memory(lowered.compile()).needs > 0
