"""The plugin of pytest beside JAX: functions are compiled, for the mark's target too."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from importlib.util import find_spec

import pytest

pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
pytest_plugins = ("pytester",)
IS_INSTALLED = any(
    entry.value == "hlomem.pytest_plugin" for entry in entry_points(group="pytest11")
)
TESTS = """
import jax, jax.numpy as jnp, pytest

def step(w, x):
    return w - 0.1 * jnp.tanh(x @ w).T @ x

SHAPE = jax.ShapeDtypeStruct((SIZE, SIZE), "float32")

@pytest.mark.limit_hbm("8 MiB")
def test_function(hbm):
    memory = hbm(step, SHAPE, SHAPE, jit={"donate_argnums": 0})
    assert memory.peak.size <= memory.space.size

@pytest.mark.limit_hbm("8 MiB")
def test_whatever_is_compiled():
    jax.jit(step)(jnp.ones((SIZE, SIZE)), jnp.ones((SIZE, SIZE))).block_until_ready()

@pytest.mark.limit_hbm("8 MiB")
def test_nothing_compiled():
    pass
"""
TARGET = """
import jax, jax.numpy as jnp, pytest

@pytest.mark.limit_hbm(target="tpu-v5e:1x1")
def test_fits(hbm):
    memory = hbm(jnp.tanh, jax.ShapeDtypeStruct((256, 256), "float32"))
    assert memory.memory.machine.platform == "tpu"

@pytest.mark.limit_hbm(target="tpu-v5e:1x1")
def test_fits_not(hbm):
    hbm(lambda x: jnp.sort(x @ x.T, axis=0)[0], jax.ShapeDtypeStruct((100000, 8), "float32"))
"""


def _run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    plugin = () if IS_INSTALLED else ("-p", "hlomem.pytest_plugin")
    return pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", *arguments)


def _write(pytester: pytest.Pytester, size: int) -> None:
    pytester.path.joinpath("test_step.py").write_text(TESTS.replace("SIZE", str(size)))


def test_functions_and_whatever_is_compiled_are_held_to_limits_and_baselines(
    pytester: pytest.Pytester,
) -> None:
    _write(pytester, 256)
    _run(pytester, "--hlomem-update").assert_outcomes(passed=3)
    _write(pytester, 300)
    done = _run(pytester)
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(
        ["hlomem: needs * on cpu, +* against the baseline", "*test_step.py:5"]
    )
    _write(pytester, 2000)
    done = _run(pytester)
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(
        ["hlomem: needs * the limit is 8.00 MiB: *", "test_step.py::test_whatever_is_compiled"]
    )


@pytest.mark.skipif(find_spec("libtpu") is None, reason="no libtpu; `make jax` has it")
def test_the_limit_of_a_target_is_what_its_chip_has(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "JAX_PLATFORMS", "cpu")
    pytester.path.joinpath("test_target.py").write_text(TARGET)
    done = _run(pytester)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "hlomem: needs 74.58 GiB of HBM on tpu-v5e:1x1, the limit is 15.75 GiB: over by*",
            "*100.0%  test_target.py:11",
        ]
    )
