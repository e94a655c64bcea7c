"""`hlomem.jax.advise`: got is what XLA's compile of the printed diff gives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import hlomem.jax
from hlomem.base.errors import CommandError
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.parent import plan_in_child
from hlomem.jax.trials.advise import _untried
from hlomem.report.data.advice import Advice, AdviceReport

pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")

MODEL = '''"""A model."""

import jax
import jax.numpy as jnp

S = jax.ShapeDtypeStruct


def layer(x, w):
    return x + jnp.tanh(jnp.sin(x) @ w), None


def loss(ws, x):
    return (jax.lax.scan(layer, x, ws)[0] ** 2).sum()


@jax.jit
def train_step(ws, x):
    return ws - jax.grad(loss)(ws, x)


WEIGHTS = S((12, 64, 64), "float32")
BATCH = S((4096, 64), "float32")


def make():
    return train_step, (WEIGHTS, BATCH)


def make_walk(steps=64):
    def gradient(y):
        def walk(y):
            step = lambda y, _: (jnp.sin(y) + jnp.cos(y), None)
            return jax.lax.scan(step, y, length=steps)[0].sum()

        return jax.grad(walk)(y)

    return gradient, (S((4096,), "float32"),)


def headed(x, w, heads, *, kind):
    parts = (x @ w).reshape(*x.shape[:-1], heads, -1)
    return x + (jnp.sin(jnp.tanh(parts)) if kind == "tanh" else parts).reshape(x.shape)


def make_headed():
    def loss(ws, x):
        for w in ws:
            x = headed(x, w, 4, kind="tanh")
        return (x**2).sum()

    return jax.jit(jax.grad(loss)), ([S((64, 64), "float32")] * 8, S((4096, 64), "float32"))


def make_cached():
    def decode(params, cache, x):
        def body(x, inputs):
            w, old = inputs
            x = jnp.tanh(x @ w)
            return x, jax.lax.dynamic_update_slice(old, x, (0, 0))

        return jax.lax.scan(body, x, (params, cache))

    shapes = S((6, 64, 64), "float32"), S((6, 4096, 64), "float32"), S((2048, 64), "float32")
    return jax.jit(decode), shapes
'''


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "trial_model.py").write_text(MODEL)
    return folder


def _needs(file: Path, factory: str) -> int:
    return plan_in_child(Job(factory=f"{file}:{factory}", target="cpu")).memory.space.size


def _patched(home: Path, diff: str, folder: Path) -> Path:
    (folder / "trial_model.py").write_text((home / "trial_model.py").read_text())
    subprocess.run(
        ["/usr/bin/env", "patch", "-p1"], input=f"{diff}\n", text=True, check=True, cwd=folder
    )
    return folder / "trial_model.py"


def test_got_is_what_the_printed_diff_gives_and_a_set_that_fits_is_found(
    home: Path, tmp_path: Path
) -> None:
    found = hlomem.jax.advise(
        f"{home / 'trial_model.py'}:make", target="cpu", fit=30 << 20, cache=tmp_path / "cache"
    )
    [advice, *_] = [piece for piece in found.advice if piece.rule == "checkpoint"]
    assert advice.title == "recompute layer in the backward pass (the body of a loop)"
    assert advice.method == "compiled"
    assert "+@jax.checkpoint\n def layer(x, w):" in advice.how
    file = _patched(home, advice.how, tmp_path)
    assert found.size - _needs(file, "make") == advice.got
    assert found.together is not None
    assert found.together.fits
    assert found.together.size <= 30 << 20
    assert (home / "trial_model.py").read_text() == MODEL
    assert "compiled for cpu" in str(found)
    assert "fits 30.00 MiB: " in str(found)


def test_a_long_scan_is_recomputed_in_chunks(home: Path, tmp_path: Path) -> None:
    found = hlomem.jax.advise(
        f"{home / 'trial_model.py'}:make_walk", target="cpu", cache=tmp_path / "cache"
    )
    [advice] = [piece for piece in found.advice if piece.rule == "chunks"]
    assert advice.got is not None
    assert advice.got > 0.5 * found.size
    file = _patched(home, advice.how, tmp_path)
    assert found.size - _needs(file, "make_walk") == advice.got


def test_arguments_that_are_no_arrays_stay_so_where_a_function_is_recomputed(
    home: Path, tmp_path: Path
) -> None:
    found = hlomem.jax.advise(
        f"{home / 'trial_model.py'}:make_headed", target="cpu", cache=tmp_path / "cache"
    )
    pieces = [piece for piece in found.advice if piece.rule == "checkpoint"]
    if not pieces:  # XLA of jax 0.10 keeps no less; that it was compiled is what counts
        assert "compiled: recompute headed in the backward pass (8 calls): saves 0 B" in found.notes
        return
    advice = pieces[0]
    assert '+@checkpoint_with("heads", "kind")\n def headed(' in advice.how
    assert advice.got is not None
    assert advice.got > 0
    file = _patched(home, advice.how, tmp_path)
    assert found.size - _needs(file, "make_headed") == advice.got


TUNED = """import jax
from flax import nnx


class Block(nnx.Module):
    def __init__(self, rngs):
        self.wide = nnx.LoRALinear(64, 256, lora_rank=4, rngs=rngs)
        self.back = nnx.LoRALinear(256, 64, lora_rank=4, rngs=rngs)

    def __call__(self, x, is_gated):
        x = x + self.back(nnx.gelu(self.wide(x)))
        return nnx.silu(x) if is_gated else x


class Model(nnx.Module):
    def __init__(self, rngs):
        self.blocks = nnx.List([Block(rngs) for _ in range(4)])

    def __call__(self, x):
        for block in self.blocks:
            x = block(x, True)
        return x


def make():
    model = nnx.eval_shape(lambda: Model(nnx.Rngs(0)))
    graph, tuned, rest = nnx.split(model, nnx.LoRAParam, ...)

    @jax.jit
    def train_step(tuned, rest, x):
        return jax.grad(lambda tuned: (nnx.merge(graph, tuned, rest)(x) ** 2).sum())(tuned)

    return train_step, (tuned, rest, jax.ShapeDtypeStruct((4096, 64), "float32"))
"""


def test_a_block_of_nnx_whose_other_parameters_are_from_outside_is_recomputed(
    tmp_path: Path,
) -> None:
    pytest.importorskip("flax.nnx")
    (tmp_path / "trial_model.py").write_text(TUNED)
    found = hlomem.jax.advise(
        f"{tmp_path / 'trial_model.py'}:make", target="cpu", cache=tmp_path / "cache"
    )
    [advice, *_] = [piece for piece in found.advice if piece.rule == "checkpoint"]
    assert "nnx.remat, static_argnums=(2,), graph_updates=False)" in advice.how
    assert advice.got is not None
    assert advice.got > 0


def test_donating_a_cache_that_a_scan_reads_and_writes_again_is_tried(
    home: Path, tmp_path: Path
) -> None:
    found = hlomem.jax.advise(
        f"{home / 'trial_model.py'}:make_cached", target="cpu", cache=tmp_path / "cache"
    )
    assert "compiled: donate x, cache: saves 512.0 KiB" in found.notes  # on CPU it is copied


def test_what_no_compile_has_decided_has_no_bytes() -> None:
    planned = Advice(
        rule="layout",
        title="give x in layout {0,1}",
        least=1,
        most=2,
        method="re-planned",
        confidence="medium",
        cost="",
        how="",
        link="",
    )
    report = AdviceReport(name="f", space="hbm", size=9, advice=(planned,))
    [piece] = _untried(report, [])
    assert (piece.method, piece.least, piece.most) == ("possible", None, None)


def test_a_function_is_advised_on_with_its_arguments(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "import msgspec, sys\n"
        f"sys.path.insert(0, {str(home)!r})\n"
        "import hlomem.jax, trial_model as model\n"
        "found = hlomem.jax.advise(model.train_step, model.WEIGHTS, model.BATCH,"
        f" target='cpu', cache={str(tmp_path / 'cache')!r})\n"
        "print(msgspec.json.encode(found).decode())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    rules = {piece["rule"]: piece["got"] for piece in json.loads(done.stdout)["advice"]}
    assert rules["checkpoint"] > 0


def test_a_factory_takes_no_arguments() -> None:
    with pytest.raises(CommandError, match="a factory has its own arguments"):
        hlomem.jax.advise("m:f", 3, target="cpu")
