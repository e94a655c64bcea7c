"""Decisions of a program that are made otherwise while it is traced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import hlomem.jax
from hlomem.advice.code import DROPPED_PRIMITIVES, DROPPING_POLICY, DROPS_GATHERED
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import plan_in_child
from hlomem.jax.trials.decided import other_constraints, recomputed_loops
from hlomem.report.data.sharding.decision import Decision, Frame
from hlomem.report.data.sharding.finding import ShardingChange

if TYPE_CHECKING:
    from pathlib import Path

MODEL = '''"""A model."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct


def put(x, mesh, spec):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))


def gather(mesh, w):
    return jax.tree.map(lambda one: put(one.astype(jnp.bfloat16), mesh, P()), w)


def make_gathered(devices):
    mesh = Mesh(np.array(devices), ("data",))
    block = lambda w, x: x + jnp.tanh(x @ w["up"].astype(x.dtype)) @ w["down"].astype(x.dtype)

    def body(x, w):
        w = gather(mesh, w)
        return jax.checkpoint(block)(w, x), None

    def loss(w, x):
        return (jax.lax.scan(body, x, w)[0] ** 2).mean()

    w = {n: S((8, 256, 256), "float32", sharding=NamedSharding(mesh, P(None, "data")))
         for n in ("up", "down")}
    x = S((4096, 256), "float32", sharding=NamedSharding(mesh, P("data")))
    return jax.jit(jax.grad(loss)), (w, x)


def make_mapped(devices):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("data", "model"))
    square = lambda x: jnp.cumsum(jnp.tanh(x) * x, axis=1)

    def step(x):
        x = put(jnp.sin(x), mesh, P("data", None, "model"))
        x = jax.shard_map(square, mesh=mesh, in_specs=P("data"), out_specs=P("data"))(x)
        return put(x, mesh, P("data", None, "model")).sum()

    return jax.jit(step), (S((64, 128, 512), "float32", sharding=NamedSharding(mesh, P("data"))),)
'''


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with factories, in the current folder."""
    pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    return file


def _line(words: str) -> int:
    return next(at for at, line in enumerate(MODEL.split("\n"), 1) if words in line)


@pytest.mark.usefixtures("eight_devices")
def test_decisions_are_noted_with_the_lines_that_led_to_them(model: Path) -> None:
    job = Job(factory=f"{model}:make_gathered", target="cpu", has_shardings=True)
    facts = plan_in_child(job, timeout=600, on_progress=lambda _: None).facts
    kinds = [one.kind for one in facts.decisions]
    assert (kinds.count("constraint"), kinds.count("scan")) == (1, 1)  # both leaves are the same
    assert "checkpoint" in kinds
    noted = next(one for one in facts.decisions if one.kind == "constraint")
    assert (noted.shapes, noted.specs, noted.sizes) == (((256, 256),), ("P()",), (1 << 17,))
    lines = [int(frame.line.rpartition(":")[2]) for frame in noted.applied]
    own = _line("one.astype")
    assert lines[:4] == [_line("with_sharding_constraint"), own, own, _line("w = gather")]
    assert noted.written[0].line == f"{model}:{own}"
    assert {name.rpartition("::")[2] for name in facts.placing} >= {"put", "gather"}


@pytest.mark.usefixtures("eight_devices")
def test_gathers_before_a_checkpoint_are_recomputed_by_the_loop(model: Path) -> None:
    if pytest.importorskip("jax").__version_info__ < (0, 12):
        pytest.skip("XLA before jax 0.12 splits these weights otherwise")
    report = hlomem.jax.shard(f"{model}:make_gathered", target="cpu", cache=model.parent / "c")
    first = report.findings[0]
    assert first.kind == "gathered"
    assert "jax.checkpoint(" in first.how
    assert first.source == f"{model}:{_line('w = gather')}"
    assert first.got is not None
    assert first.got > 0


@pytest.mark.usefixtures("eight_devices")
def test_a_shard_map_without_an_axis_of_its_arrays_is_named(model: Path) -> None:
    report = hlomem.jax.shard(f"{model}:make_mapped", target="cpu", cache=model.parent / "c")
    [first] = [one for one in report.findings if one.title.startswith("shard_map")]
    assert first.source == f"{model}:{_line('jax.shard_map(')}"
    assert "P('data') -> P('data', None, 'model')" in first.how
    assert first.change.decisions[0].specs == ("P('data') -> P('data', None, 'model')",)
    assert first.got is not None
    assert first.got > 0


def _decision(kind: str, *lines: int, spec: str = "") -> Decision:
    frames = [Frame(line=f"m.py:{line}", function="f", begin=1) for line in lines]
    specs = (spec,) if spec else ()
    return Decision(kind=kind, specs=specs, applied=tuple(frames))  # type: ignore[arg-type]


def test_a_constraint_is_replaced_reached_in_steps_or_left_out() -> None:
    asked = _decision("constraint", 3, spec="P('y')")
    wanted = ShardingChange(constraint="P('x')", through=("P(None, 'x')",), may_be_left_out=True)
    changes = list(other_constraints([asked], wanted))
    assert [change.decisions[0].specs for change in changes] == [
        ("P('x')",),
        ("P(None, 'x')", "P('y')"),
        (),
    ]
    assert changes[-1].code == "without the constraint P('y')"
    assert list(other_constraints([], wanted)) == []


def test_only_loops_around_gathers_are_recomputed() -> None:
    inner, outer, other = _decision("scan", 7, 9), _decision("scan", 9), _decision("scan", 20)
    gather = _decision("constraint", 3, 7, 9, spec="P()")
    changes = list(recomputed_loops([outer, inner, other, gather], [gather]))
    assert [change.decisions[0].decision for change in changes] == [outer, inner]
    assert all(change.decisions[0].dropped == DROPPED_PRIMITIVES for change in changes)
    kept = _decision("checkpoint", 5, 7, 9)
    without = list(recomputed_loops([inner, gather, kept], [gather]))[1]
    assert without.decisions[0].dropped == ()
    given = _decision("checkpoint", 7, 9)  # the function that the loop is given
    without = list(recomputed_loops([inner, gather, given], [gather]))[1]
    assert without.decisions[0].dropped == ()


def test_the_printed_policy_drops_what_the_compiled_one_did() -> None:
    defined: dict[str, object] = {}
    exec(DROPPING_POLICY, defined)  # noqa: S102 - it is ours

    class Primitive:
        def __init__(self, name: str) -> None:
            self.name = name

    policy = defined[DROPS_GATHERED]
    assert callable(policy)
    assert not any(policy(Primitive(name)) for name in DROPPED_PRIMITIVES)
    assert policy(Primitive("dot_general"))
