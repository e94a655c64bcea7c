"""`captured`: every compile of a block is there with XLA's plan, and nothing else has changed."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hlomem
import hlomem.jax
from hlomem.base.errors import InputError, UnknownNameError
from hlomem.jax import capture
from hlomem.jax.pass_ import hook

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
jnp: Any = pytest.importorskip("jax.numpy")
np: Any = pytest.importorskip("numpy")

ONES = np.ones((64, 64), "float32")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made, so that what is left of them is seen."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def _left_in(temporary: Path) -> list[Path]:
    """The files that are left; where others have threads, the folder stays until the end."""
    return [path for path in temporary.rglob("*") if path.is_file()]


def _named(name: str, factor: float = 2.0) -> Callable[[Any], Any]:
    """A new function, which no cache of JAX knows."""

    def function(x: Any) -> Any:
        return jnp.tanh(x @ x) * factor

    function.__name__ = name
    return function


def _settings() -> dict[str, Any]:
    return {name: getattr(jax.config, name) for name in (*capture._SETTINGS, capture._FOLDER)}


def test_compiles_are_there_in_their_order_with_xlas_own_plan(tmp_path: Path) -> None:
    with hlomem.jax.captured() as compiles:
        jax.jit(_named("first"))(ONES)
        jax.jit(_named("second")).lower(ONES).compile()
    assert [program.name for program in compiles] == ["first", "second"]
    assert not any(program.is_planned for program in compiles)
    options = {"xla_dump_to": str(tmp_path), "xla_dump_hlo_as_text": True}
    jax.jit(_named("first")).lower(ONES).compile(compiler_options=options)
    dumped, held = hlomem.explain(tmp_path, module="first"), compiles["first"].explanation
    assert held.space.size == dumped.space.size == compiles[0].size
    assert [(row.key, row.size) for row in held.by("line")] == [
        (row.key, row.size) for row in dumped.by("line")
    ]
    compiles[0].write_page(tmp_path / "page.html")
    assert "first" in (tmp_path / "page.html").read_text()


def test_a_program_that_calls_python_is_seen_where_jax_does_not_store_it() -> None:
    def talks(x: Any) -> Any:
        jax.debug.callback(lambda _: None, x.sum())
        return x + 1

    with hlomem.jax.captured() as compiles:
        jax.jit(talks)(ONES)
        jax.effects_barrier()
    assert compiles["talks"].size >= 2 * ONES.nbytes


def test_a_program_that_was_not_stored_is_planned_and_as_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with hlomem.jax.captured() as stored:
        jax.jit(_named("step"))(ONES)
    monkeypatch.setattr(capture, "_list_entries", lambda _: [])
    with hlomem.jax.captured() as seen:
        jax.jit(_named("step"))(ONES)
    assert not stored["step"].is_planned
    assert seen["step"].is_planned
    assert seen["step"].size == stored["step"].size
    assert seen["step"].allocation_sizes == stored["step"].allocation_sizes
    assert "planned by hlomem" in str(seen)


def test_of_programs_of_one_name_each_finds_its_own_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = capture._list_entries
    monkeypatch.setattr(capture, "_list_entries", lambda folder: entries(folder)[1:])
    with hlomem.jax.captured() as compiles:
        for size in (16, 32, 64):
            jax.jit(_named("step"))(np.ones((size, size), "float32"))
    assert [program.is_planned for program in compiles] == [True, False, False]
    assert [program.size for program in compiles] == [2 * 4 * size**2 for size in (16, 32, 64)]


def test_without_the_hook_what_was_stored_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "_put_in", lambda: None)
    with hlomem.jax.captured() as compiles:
        jax.jit(_named("step"))(ONES)
    assert [program.name for program in compiles] == ["step"]
    assert not compiles[0].is_planned


def test_settings_and_the_users_cache_stay_as_they_were(tmp_path: Path, temporary: Path) -> None:
    own = tmp_path / "cache"
    before = _settings()
    jax.config.update("jax_compilation_cache_dir", str(own))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    capture._forget_folder()
    try:
        jax.jit(_named("outside"))(ONES)
        held = _settings(), sorted(path.name for path in own.iterdir())
        with hlomem.jax.captured():
            jax.jit(_named("inside"))(ONES)
        assert (_settings(), sorted(path.name for path in own.iterdir())) == held
        jax.jit(_named("afterwards"))(ONES)
        assert any("afterwards" in path.name for path in own.iterdir())
        assert not any("inside" in path.name for path in own.iterdir())
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        capture._forget_folder()
    assert _left_in(temporary) == []


def test_a_setting_the_user_changes_in_the_block_stays_changed(tmp_path: Path) -> None:
    before = _settings()
    try:
        with hlomem.jax.captured():
            jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        assert jax.config.jax_compilation_cache_dir == str(tmp_path)
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        capture._forget_folder()
    assert _settings() == before


def test_an_exception_passes_and_leaves_compiles_and_settings(temporary: Path) -> None:
    before, watchers = _settings(), hook._watchers
    compiles = None

    def fail() -> None:
        nonlocal compiles
        with hlomem.jax.captured() as compiles:
            jax.jit(_named("step"))(ONES)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert compiles is not None
    assert [program.name for program in compiles] == ["step"]
    assert _settings() == before
    assert _left_in(temporary) == []
    assert hook._watchers == watchers
    assert watchers or hook._hooks == {}


def test_an_inner_block_sees_its_own_and_the_outer_one_all() -> None:
    with hlomem.jax.captured() as outer:
        jax.jit(_named("first"))(ONES)
        with hlomem.jax.captured() as inner:
            jax.jit(_named("middle"))(ONES)
        jax.jit(_named("last"))(ONES)
    assert [program.name for program in inner] == ["middle"]
    assert [program.name for program in outer] == ["first", "middle", "last"]
    assert not any(program.is_planned for program in [*inner, *outer])


def test_threads_open_blocks_and_compile_at_once(temporary: Path) -> None:
    before = _settings()
    found: dict[int, list[str]] = {}

    def work(number: int) -> None:
        for turn in range(3):
            with hlomem.jax.captured() as compiles:
                jax.jit(_named(f"of_{number}", turn + 1.0)).lower(ONES).compile()
            found.setdefault(number, []).extend(program.name for program in compiles)

    threads = [threading.Thread(target=work, args=[number], daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    counts = [found[number].count(f"of_{number}") for number in range(4)]
    assert counts == [3, 3, 3, 3]
    assert _settings() == before
    assert [path for path in temporary.rglob("*") if path.is_file()] == []


def test_a_name_that_is_not_there_is_answered_with_those_that_are() -> None:
    with hlomem.jax.captured() as compiles:
        jax.jit(_named("step"))(ONES)
    assert compiles.largest is compiles["jit_step"] is compiles["step"]
    with pytest.raises(UnknownNameError, match="no program `evaluate` was compiled; there are: st"):
        compiles["evaluate"]
    with hlomem.jax.captured() as nothing:
        pass
    assert (nothing.largest, str(nothing)) == (None, "no program was compiled")


def test_no_place_for_a_folder_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, watchers = _settings(), hook._watchers
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(InputError, match="set TMPDIR to another folder"), hlomem.jax.captured():
        pytest.fail("the block ran")
    assert _settings() == before
    assert hook._watchers == watchers
