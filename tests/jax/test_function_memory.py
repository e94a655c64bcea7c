"""`hlomem.jax.memory`: a function, a Lowered and a Compiled have one memory, which is XLA's."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import hlomem.jax
from hlomem.base.errors import CommandError
from hlomem.jax import function_memory

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
jnp: Any = pytest.importorskip("jax.numpy")
np: Any = pytest.importorskip("numpy")


def _loss(params: Any, batch: Any) -> Any:
    hidden, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), batch, params["layers"])
    return jnp.sum((hidden @ params["out"]) ** 2)


def step(params: Any, batch: Any) -> Any:
    """A step of training, with a loop in it."""
    loss, gradients = jax.value_and_grad(_loss)(params, batch)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), {"loss": loss}


def _shape(*dimensions: int) -> Any:
    return jax.ShapeDtypeStruct(dimensions, jnp.float32)


PARAMS = {"layers": (4, 64, 64), "out": (64, 200)}


def _arguments() -> tuple[Any, Any]:
    return {name: _shape(*shape) for name, shape in PARAMS.items()}, _shape(16, 64)


def _places(memory: Any) -> list[Any]:
    """Every value of a program, by number, name and place."""
    return sorted(
        (each.id, each.name, each.allocation, each.offset, each.size, each.color, each.result)
        for each in memory.memory.buffers
    )


def test_function_lowered_and_compiled_have_the_memory_xla_dumps() -> None:
    jitted = jax.jit(step, donate_argnums=0)
    lowered = jitted.lower(*_arguments())
    of_function = hlomem.jax.memory(step, *_arguments(), jit={"donate_argnums": 0})
    others = [(jitted, *_arguments()), (lowered,), (lowered.compile(),)]
    for subject, *arguments in others:
        found = hlomem.jax.memory(subject, *arguments)
        assert _places(found) == _places(of_function)
        assert found.peak.size == of_function.peak.size
        assert str(found.by("line")) == str(of_function.by("line"))


def test_arguments_and_results_have_their_paths_and_lines_are_the_users() -> None:
    memory = hlomem.jax.memory(step, *_arguments(), jit={"donate_argnums": 0})
    assert {row.name for row in memory.donation.rows} == {
        "params['layers']",
        "params['out']",
        "batch",
    }
    results = {each.result for each in memory if each.result}
    assert results == {"result[0]['layers']", "result[0]['out']", "result[1]['loss']"}
    assert memory["result[0]['out']"].buffer.parameter == "params['out']"
    assert f"{Path(__file__).name}:" in str(memory)
    assert memory._repr_html_().startswith("<iframe ")


def test_a_single_result_is_called_so() -> None:
    memory = hlomem.jax.memory(lambda x: x @ x, _shape(32, 32))
    assert memory["result"].buffer.size == 32 * 32 * 4


def test_arrays_and_keywords_are_arguments_too() -> None:
    def scale(x: Any, *, factor: Any) -> Any:
        return x * factor

    memory = hlomem.jax.memory(scale, np.ones((8, 8), "float32"), factor=jnp.float32(2))
    assert {row.name for row in memory.donation.rows} == {"x", "factor"}


def test_without_serialization_a_compiled_is_planned_from_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = jax.jit(step).lower(*_arguments()).compile()
    exact = hlomem.jax.memory(compiled)
    monkeypatch.setattr(function_memory, "_serialized", lambda _: b"")
    planned = hlomem.jax.memory(compiled)
    assert planned.space.size == exact.space.size


def test_nothing_is_left_of_a_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    hlomem.jax.memory(step, *_arguments())
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def cache(tmp_path: Path) -> Any:
    """A persistent cache that takes everything."""
    state = pytest.importorskip("jax.experimental.compilation_cache.compilation_cache")
    wanted = {
        "jax_compilation_cache_dir": str(tmp_path / "cache"),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    for name, value in wanted.items():
        jax.config.update(name, value)
    state.reset_cache()
    yield tmp_path / "cache"
    for name, value in before.items():
        jax.config.update(name, value)
    state.reset_cache()


def _entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*-cache"))


def test_the_persistent_cache_is_as_it_was(cache: Path) -> None:
    lowered = jax.jit(lambda x: jnp.sort(x) @ x).lower(_shape(48, 48))
    hlomem.jax.memory(lowered)
    assert not cache.exists() or not _entries(cache)
    assert jax.config.jax_enable_compilation_cache
    lowered.compile()
    entries = _entries(cache)
    assert len(entries) == 1
    memory = hlomem.jax.memory(lowered)  # no hit, which would leave no dump, and no other entry
    assert memory["result"].buffer.size == 48 * 48 * 4
    assert _entries(cache) == entries


def test_threads_that_measure_at_once_leave_the_cache_on(cache: Path) -> None:
    found: list[int] = []

    def measure(size: int) -> None:
        found.append(hlomem.jax.memory(lambda x: x @ x, _shape(size, size)).space.size)

    threads = [threading.Thread(target=measure, args=(size,)) for size in (32, 64, 96)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [2 * 4 * size**2 for size in (32, 64, 96)]
    assert jax.config.jax_enable_compilation_cache
    jax.jit(lambda x: x + 1).lower(_shape(8)).compile()
    assert len(_entries(cache)) == 1


def test_wrong_uses_are_said() -> None:
    lowered = jax.jit(step).lower(*_arguments())
    with pytest.raises(CommandError, match="a Lowered has its own arguments and `jit`"):
        hlomem.jax.memory(lowered, 1, jit={"donate_argnums": 0})
    with pytest.raises(CommandError, match=r"jitted already.*donate_argnums"):
        hlomem.jax.memory(jax.jit(step), *_arguments(), jit={"donate_argnums": 0})
    with pytest.raises(CommandError, match="a `int` is not a function"):
        hlomem.jax.memory(3)
    with pytest.raises(CommandError, match="no target `tpu-v9`: known are tpu-v4:2x2x1, "):
        hlomem.jax.memory(step, target="tpu-v9")


def test_the_cpu_is_a_target_too() -> None:
    there = hlomem.jax.memory(step, *_arguments(), target="cpu")
    here = hlomem.jax.memory(step, *_arguments())
    assert _places(there) == _places(here)
    ones = hlomem.jax.memory(lambda: jnp.ones((64, 64)), target="cpu")
    assert ones["result"].buffer.size == 64 * 64 * 4
