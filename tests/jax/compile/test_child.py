"""What a child answers, asked in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem.jax.compile.child import _outcome
from hlomem.jax.compile.messages import DUMP, Job
from hlomem.jax.target_kinds import parse_target

pytest.importorskip("jax", reason="jax is not installed")
HERE = Path(__file__).parents[1] / "factories.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a child leaves its files."""
    (tmp_path / DUMP).mkdir()
    return tmp_path


def test_a_program_is_compiled_and_its_dump_is_there(folder: Path) -> None:
    outcome = _outcome(Job(factory=f"{HERE}:step", target="cpu"), folder)
    assert (outcome.problem, outcome.refusal) == ("", "")
    assert list((folder / DUMP).glob("*train_step*buffer-assignment.txt"))


@pytest.mark.parametrize(
    ("factory", "kind", "says"),
    [
        ("nowhere", "usage", "nowhere"),
        ("returns_nothing", "usage", "the factory returned a `NoneType` instead of"),
        ("raises", "factory", "ValueError: the configuration has no width"),
    ],
)
def test_whoever_is_at_fault_is_named(folder: Path, factory: str, kind: str, says: str) -> None:
    outcome = _outcome(Job(factory=f"{HERE}:{factory}", target="cpu"), folder)
    assert outcome.kind == kind
    assert says in outcome.problem


def test_a_compiler_that_is_not_installed_is_said_with_the_command(folder: Path) -> None:
    target = parse_target("tpu-v5e:2x2")
    if not target.missing:
        pytest.skip("libtpu is installed")
    outcome = _outcome(Job(factory=f"{HERE}:step", target=target.name), folder)
    assert outcome.kind == "missing"
    assert "pip install" in outcome.problem
