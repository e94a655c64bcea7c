"""Programs linked by libtpu's phases: the same machine code, and what may go wrong."""

from __future__ import annotations

import io
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

import hlomem.jax
from hlomem.base.errors import CommandError, HlomemError
from hlomem.cli.link import command
from hlomem.jax.compile.parent import CompileError
from hlomem.jax.compile.programs import lower
from hlomem.jax.linking.jax_side import Calls, program_of
from hlomem.jax.linking.program import compare_with_jax
from hlomem.jax.target_kinds import TpuTarget, parse_target
from hlomem.libtpu import versions
from hlomem.libtpu.phases import Phases
from hlomem.libtpu.pjrt import PhaseCompiler
from hlomem.libtpu.plans import checked
from hlomem.proto.dump import make_dump
from hlomem.proto.module import read_module
from hlomem.proto.programs import open_programs
from hlomem.proto.schema import parse_message
from tests.libtpu.mutants import MUTANTS, mutant
from tests.libtpu.test_plans import is_harmful
from tests.places import ROOT

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
pytest.importorskip("libtpu", reason="libtpu is not installed; `make jax` runs these tests")
pytest.importorskip("zstandard", reason="zstandard is not installed; `make jax` runs these tests")
jnp: Any = pytest.importorskip("jax.numpy")

TARGET = "tpu-v5e:2x2"
GROWN = "tools.programs.linked:program"
SCALED = "tools.programs.linked:scaled"
FACTORIES = "tests.jax.factories"


def _barrier(x: Any) -> Any:
    return jax.lax.optimization_barrier(x)


def _loop(x: Any, y: Any) -> Any:
    return jax.lax.fori_loop(0, 5, lambda _, h: jnp.tanh(h @ y), x)


def _branch(x: Any, y: Any) -> Any:
    return jax.lax.cond(x[0, 0] > 0, lambda: x @ y, lambda: y.T)


def _scan(x: Any, y: Any) -> Any:
    return jax.lax.scan(lambda h, row: (h + row, h * row), x[0], y)


def _checkpointed(x: Any, y: Any) -> Any:
    def loss(y: Any) -> Any:
        layer = jax.checkpoint(lambda h: jnp.sin(h @ y))
        return (layer(layer(x)) ** 2).sum()

    return y - jax.grad(loss)(y)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "matmul": lambda x, y: x @ y,
    "two products": lambda x, y: (jnp.tanh(x @ y) @ x, x.sum()),
    "transposes": lambda x, y: _barrier(x.T + y) * x,
    "sort": lambda x, y: jnp.sort(x, 1) + y,
    "running sums": lambda x, y: jnp.cumsum(x, 0) * y,
    "softmax": lambda x, y: jax.nn.softmax(x, -1) @ y,
    "gather": lambda x, y: x[jnp.argsort(y[0])],
    "scatter": lambda x, y: x.at[jnp.argsort(y[0])].add(y),
    "slices": lambda x, y: jnp.concatenate([x[:, ::2], y[:, 1::2]], 1),
    "pad": lambda x, y: jnp.pad(x, 3)[3:-3, 3:-3] * y,
    "reduce": lambda x, y: (x.max(0), y.min(1), (x * y).mean()),
    "random": lambda x, y: x + jax.random.normal(jax.random.key(1), y.shape),
    "half": lambda x, y: (x.astype("bfloat16") @ y.astype("bfloat16")).astype("float32"),
    "integers": lambda x, y: (x > y).astype("int32").sum(0),
    "gradient": lambda x, y: jax.grad(lambda y: (jnp.tanh(x @ y) ** 2).sum())(y),
    "loop": _loop,
    "branch": _branch,
    "scan": _scan,
    "checkpoint": _checkpointed,
    "complex": lambda x, y: jnp.abs(jnp.fft.fft(x, axis=1)) + y,
    "while": lambda x, y: jax.lax.while_loop(lambda h: h.sum() < 9, lambda h: h + y, x),
}


@cache
def target() -> TpuTarget:
    found = parse_target(TARGET)
    assert isinstance(found, TpuTarget)
    assert found.devices
    return found


@cache
def phases() -> Phases:
    name = target().topology_name
    return Phases(PhaseCompiler(versions.find_library().path, name, is_loaded=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_machine_code_by_phases_is_that_of_jax(name: str) -> None:
    array = jax.ShapeDtypeStruct((256, 256), "float32")
    calls = program_of(lower(PROGRAMS[name], (array, array), {}, target()))
    code_bytes, _, _ = compare_with_jax(phases(), calls)
    assert code_bytes > 10_000


@cache
def calls_of(name: str) -> Calls:
    """A program with temporaries, prefetches and sync flags."""
    width = 512

    def train(ws: Any, x: Any) -> Any:
        def loss(ws: Any) -> Any:
            h = x
            for w in ws:
                h = h + jnp.tanh(h @ w) if name == "residual" else jnp.sin(_barrier(h @ w)).T
            return (h**2).sum()

        return jax.tree.map(lambda w, g: w - g, ws, jax.grad(loss)(ws))

    shape = jax.ShapeDtypeStruct((width, width), "float32")
    rows = jax.ShapeDtypeStruct((width * 64, width), "float32")  # more than fits VMEM
    x = rows if name == "residual" else shape
    lowered = lower(jax.jit(train, donate_argnums=0), ([shape] * 4, x), {}, target())
    return program_of(lowered)


_ENOUGH = {"residual": 500, "transposed": 1000}


def test_a_thousand_harmful_mutants_are_refused_before_they_are_linked() -> None:
    machine = target().machine
    refused = 0
    for name in ("residual", "transposed"):
        calls = calls_of(name)
        compiled = phases().compile(calls.stablehlo, calls.options)
        module, plan = compiled.module, compiled.plan
        before = make_dump(read_module(module, ""), parse_message("BufferAssignment", plan))
        checked(module, plan, machine)
        for seed in range(1200):
            kind = list(MUTANTS)[seed % len(MUTANTS)]
            broken = mutant(plan, kind, Random(seed))  # noqa: S311 - the same every time
            if broken is None or not is_harmful(before, module, broken, kind):
                continue
            with pytest.raises(HlomemError):
                checked(module, broken, machine)
            refused += 1
            if refused >= _ENOUGH[name]:
                break
    assert refused >= 1000


ANSWERS = {
    "an HBM value where another lies": "accepted",
    "a VMEM value where another lies": "accepted",
    "a sync flag where another lies": "accepted",
    "all HBM values at 0": "accepted",
    "all VMEM values at 0": "accepted",
    "all sync flags at 0": "accepted",
    "two values swapped": "accepted",
    "a value off its alignment": "accepted",
    "a value past the end": "refused",
    "an allocation too small": "refused",
    "a value without memory": "refused",
    "a temporary in an argument's memory": "accepted",
    "a result out of its donated memory": "aborts",
}
"""What libtpu 0.0.51 says to a broken plan, as docs/link.md has it."""


def _answers() -> Iterator[tuple[str, str]]:
    """Each kind with libtpu's answer; a process that aborts is started again after it."""
    kinds = list(MUTANTS)
    while kinds:
        script = [sys.executable, "-m", "tests.jax.broken_plans", *kinds]
        environment = {**target().environment, **os.environ, "JAX_PLATFORMS": "cpu"}
        ended = subprocess.run(
            script, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
        )
        lines = [line.split("\t") for line in ended.stdout.splitlines() if "\t" in line]
        yield from ((kind, answer) for kind, answer in lines)
        kinds = kinds[len(lines) :]
        if kinds:
            assert ended.returncode == -signal.SIGABRT, ended.stderr[-1000:]
            yield kinds.pop(0), "aborts"


def test_libtpu_accepts_nearly_all_broken_plans() -> None:
    assert dict(_answers()) == ANSWERS


class _Reader(pickle.Unpickler):
    """Reads what JAX stored, without a TPU to load it for."""

    executables: list[bytes]

    def persistent_load(self, found: Any) -> Any:
        if found[0] == "exec":
            self.executables = [*getattr(self, "executables", []), found[1]]
            return None
        devices = {device.id: device for device in target().devices}
        return devices[found[1]] if found[0] == "device" else target().devices[0].client


def _read_back(path: Path) -> bytes:
    stored, in_tree, out_tree = pickle.loads(path.read_bytes())  # noqa: S301 - we wrote it
    assert in_tree.num_leaves
    assert out_tree.num_leaves
    reader = _Reader(io.BytesIO(stored))
    reader.load()
    (executable,) = reader.executables
    return executable


def test_the_smaller_packing_is_linked_and_written_as_jax_stores_it(tmp_path: Path) -> None:
    given = {"name": "butterflies", "batch": 16}
    report = hlomem.jax.link(GROWN, target=TARGET, settings=given, output=tmp_path / "step")
    linked = report.linked
    assert linked.temporaries < linked.libtpu_temporaries
    assert report.output == tmp_path / "step.libtpu-0.0.51"
    plan = open_programs(_read_back(report.output), "", 1 << 30)[0].assignment
    assert sum(one.size for one in plan.buffer_allocations if not one.color) == linked.hbm
    with pytest.raises(CommandError, match="exists; give --force"):
        hlomem.jax.link(GROWN, target=TARGET, settings=given, output=tmp_path / "step")


def test_a_program_that_jax_refuses_is_rescued(tmp_path: Path) -> None:
    given = f"{SCALED} --target {TARGET} --set name=learn_to_learn --set eighths=784"
    words = [*given.split(), "-o", str(tmp_path / "step")]
    run = CliRunner().invoke(command, words, standalone_mode=False)
    assert run.exception is None
    said = " ".join(run.output.split())
    assert "JAX's compile refuses it: RESOURCE_EXHAUSTED" in said
    assert "linked with our packing" in said
    assert b"pjrt_ifrt" in _read_back(tmp_path / "step.libtpu-0.0.51")[:100]


def test_a_program_that_fits_neither_way_is_a_finding() -> None:
    words = f"{GROWN} --target {TARGET} --set name=branches --set batch=300"
    run = CliRunner().invoke(command, words.split(), standalone_mode=False)
    assert run.return_value == 1
    assert "not linked: libtpu refuses libtpu's own plan, too" in " ".join(run.output.split())


def test_a_full_disk_is_one_line() -> None:
    with pytest.raises(HlomemError) as caught:
        hlomem.jax.link(f"{FACTORIES}:step", target=TARGET, output="/dev/full")
    assert str(caught.value) == "/dev: No space left on device"


def test_another_version_and_target_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match="only libtpu takes a plan: give a target tpu-"):
        hlomem.jax.link(f"{FACTORIES}:step", target="cpu")
    monkeypatch.setattr(versions, "KNOWN", ("0.0.99",))
    with pytest.raises(versions.UnknownLibtpuError, match=r"libtpu 0\.0\.51 is not known"):
        hlomem.jax.link(f"{FACTORIES}:step", target=TARGET)


@pytest.mark.parametrize(("factory", "how"), [("is_killed", "SIGKILL"), ("aborts", "SIGABRT")])
def test_a_child_that_dies_is_named(factory: str, how: str) -> None:
    with pytest.raises(CompileError) as caught:
        hlomem.jax.link(f"{FACTORIES}:{factory}", target=TARGET)
    first = str(caught.value).partition("\n")[0]
    assert first.startswith(f"the process that links `{FACTORIES}:{factory}` died ({how}")
