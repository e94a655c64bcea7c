"""The pass in JAX: programs need less memory, results are the same, and it leaves no trace."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hlomem.jax
from hlomem import hlo
from hlomem.base.errors import CommandError
from hlomem.jax.compile import parent
from hlomem.jax.pass_ import hook, log, register
from hlomem.jax.pass_.transform import Transform
from hlomem.jax.target_kinds import parse_target

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
jnp: Any = pytest.importorskip("jax.numpy")
np: Any = pytest.importorskip("numpy")
pytest.importorskip("jax.extend.xla", reason="this jax has no hook for passes (0.10.2 has)")


@pytest.fixture(autouse=True)
def _new_report() -> Iterator[None]:
    log.forget()
    yield
    log.forget()


def _wide(x: Any, ws: Any) -> Any:
    """Branches that a breadth-first order keeps alive all at once."""
    parts = [jnp.cumsum(jnp.sort(x * w, axis=0)[:128], axis=1)[:, :1] for w in ws]
    return jnp.stack(parts)


def _arguments(count: int = 8) -> tuple[Any, list[Any]]:
    chance = np.random.default_rng(0)  # of numpy, which compiles nothing
    x, *ws = [chance.normal(size=(256, 256)).astype("float32") for _ in range(count + 1)]
    return x, ws


def _compile(function: Any = _wide, arguments: Any = None) -> Any:
    return jax.jit(function).lower(*(arguments or _arguments())).compile()


def _temporaries(compiled: Any) -> int:
    return int(compiled.memory_analysis().temp_size_in_bytes)


def test_xla_reports_what_was_forecast_and_results_are_equal_to_the_bit() -> None:
    plain = _compile()
    with hlomem.jax.optimize() as optimization:
        assert "cpu" in optimization.platforms
        better = _compile()
    [outcome] = hlomem.jax.report().improved
    assert outcome.before == _temporaries(plain)
    assert outcome.after == _temporaries(better) < outcome.before
    arguments = _arguments()
    assert (plain(*arguments) == better(*arguments)).all()


def test_nothing_is_left_when_it_ends() -> None:
    plain = _temporaries(_compile())
    with hlomem.jax.optimize() as optimization:
        assert _temporaries(_compile()) < plain
    assert optimization.platforms == ()
    assert _temporaries(_compile()) == plain
    optimization.remove()
    assert len(hlomem.jax.report().improved) == 1


def test_a_function_called_before_is_compiled_anew_and_again_afterwards() -> None:
    function = jax.jit(_wide)
    arguments = _arguments()
    function(*arguments)
    with hlomem.jax.optimize():
        function(*arguments)
    assert len(hlomem.jax.report().improved) == 1
    function(*arguments)
    assert len(hlomem.jax.report().improved) == 1
    assert _temporaries(function.lower(*arguments).compile()) == _temporaries(_compile())


def test_it_works_as_a_function_until_it_is_removed() -> None:
    plain = _temporaries(_compile())
    optimization = hlomem.jax.optimize(effort="low")
    try:
        assert _temporaries(_compile()) < plain
    finally:
        optimization.remove()
    assert _temporaries(_compile()) == plain


def test_two_passes_at_once_are_both_called_and_end_by_themselves() -> None:
    plain = _temporaries(_compile())
    with hlomem.jax.optimize(effort="low") as first:
        with hlomem.jax.optimize() as second:
            assert _temporaries(_compile()) < plain
            assert len(hlomem.jax.report().outcomes) == 2
            first.remove()
            assert _temporaries(_compile()) < plain
        assert second.platforms == ()
    assert _temporaries(_compile()) == plain


def test_small_programs_are_left_alone() -> None:
    with hlomem.jax.optimize(min_bytes=1 << 40):
        _compile()
    [outcome] = hlomem.jax.report().outcomes
    assert (outcome.kind, outcome.reason) == ("skipped", "small")
    assert str(hlomem.jax.report()) == "1 skipped"


def test_large_programs_are_left_alone() -> None:
    with hlomem.jax.optimize(max_instructions=3):
        _compile()
    [outcome] = hlomem.jax.report().outcomes
    assert outcome.kind == "skipped"
    assert "instructions" in outcome.reason


def test_a_failure_leaves_xlas_order_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _temporaries(_compile())

    def fail(_: bytes) -> str:
        raise RuntimeError("no text")

    with hlomem.jax.optimize():
        monkeypatch.setattr("hlomem.jax.pass_.transform.read_module", fail)
        assert _temporaries(_compile()) == plain
    [outcome] = hlomem.jax.report().outcomes
    assert (outcome.kind, outcome.reason) == ("failed", "RuntimeError: no text")


def test_threads_may_compile_at_once() -> None:
    found: list[int] = []

    def work(count: int) -> None:
        arguments = _arguments(count)
        compiled = jax.jit(lambda x, ws: _wide(x, ws) * count).lower(*arguments).compile()
        found.append(_temporaries(compiled))

    with hlomem.jax.optimize(effort="low"):
        threads = [threading.Thread(target=work, args=(count,)) for count in (6, 7, 8, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 4
    assert len(hlomem.jax.report().improved) == 4


def test_the_cache_on_disk_neither_hides_the_pass_nor_outlives_it(tmp_path: Path) -> None:
    cache = pytest.importorskip("jax.experimental.compilation_cache.compilation_cache")
    options = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in options}
    try:
        for name, value in options.items():
            jax.config.update(name, value)
        cache.reset_cache()
        plain = _temporaries(_compile())
        assert list(tmp_path.iterdir()), "JAX wrote no cache, so that nothing is tested"
        with hlomem.jax.optimize():
            assert _temporaries(_compile()) < plain
            assert len(hlomem.jax.report().improved) == 1
            jax.clear_caches()
            assert _temporaries(_compile()) < plain  # from the cache, with the pass's own key
        assert _temporaries(_compile()) == plain
        with hlomem.jax.optimize(min_bytes=1 << 40):
            assert _temporaries(_compile()) == plain
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        cache.reset_cache()


SECOND_PROCESS = """
import sys, jax, hlomem.jax
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hlomem.jax.optimize()
"""


def test_a_second_process_beside_a_cache_that_keeps_all_compiles(tmp_path: Path) -> None:
    for _ in ("first", "second"):
        line = [sys.executable, "-c", SECOND_PROCESS, str(tmp_path)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_key_of_the_cache_on_disk_names_where_the_pass_is_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = pytest.importorskip("jax._src.cache_key")
    seen = []
    for platforms in ("cpu", ["cpu", "cuda"]):
        monkeypatch.setattr(register, "_test_once", lambda *_: None)
        monkeypatch.setattr(register, "put_pass", lambda *_: None)
        monkeypatch.setattr(register, "clear_pass", lambda *_: None)
        with hlomem.jax.optimize(platforms=platforms):
            seen.append(keys.custom_hook())
    assert seen[0] != seen[1]
    assert "cuda" in seen[1]


def test_what_a_compiler_may_still_hold_is_never_freed() -> None:
    """A thread of the compiler may let the last reference to a callback go without the GIL."""
    freed: list[str] = []
    with hlomem.jax.optimize():
        names = list(hook._callbacks)
        held = hook._callbacks[names[-1]]
        weakref.finalize(held, freed.append, "callback")
        weakref.finalize(held.call, freed.append, "transform")
    del held
    gc.collect()
    assert freed == ["transform"]


def test_an_interrupt_inside_the_pass_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _temporaries(_compile())
    made: list[Any] = []

    def interrupt(_: bytes) -> None:
        raise KeyboardInterrupt

    def work() -> None:
        made.append(_compile())
        time.sleep(10)

    monkeypatch.setattr(hook, "_GRACE", 1.0)  # the compile is over by then
    with hlomem.jax.optimize():
        monkeypatch.setattr("hlomem.jax.pass_.transform.read_module", interrupt)
        with pytest.raises(KeyboardInterrupt):
            work()
    assert [_temporaries(compiled) for compiled in made] == [plain]


def test_a_handler_of_logs_that_raises_leaves_the_compile_alone() -> None:
    class Broken(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            raise RuntimeError("no disk")

    handler = Broken()
    logging.getLogger("hlomem.jax").addHandler(handler)
    logging.getLogger("hlomem.jax").setLevel(logging.INFO)
    try:
        with hlomem.jax.optimize():
            _compile()
    finally:
        logging.getLogger("hlomem.jax").removeHandler(handler)
        logging.getLogger("hlomem.jax").setLevel(logging.NOTSET)
    assert hlomem.jax.report().improved


def test_effects_and_donations_survive() -> None:
    def step(state: Any, x: Any) -> Any:
        hidden = [jnp.sort(state * w, axis=0) for w in (1.0, 2.0, 3.0, 4.0)]
        new = state + sum(jnp.cumsum(part, axis=1) for part in hidden)
        return new, (new @ x).sum()

    arguments = _arguments(2)
    lowered = jax.jit(step, donate_argnums=0).lower(arguments[0], arguments[1][0])
    plain = lowered.compile()
    with hlomem.jax.optimize():
        better = jax.jit(step, donate_argnums=0).lower(arguments[0], arguments[1][0]).compile()
    results = [program(np.array(arguments[0]), arguments[1][0]) for program in (plain, better)]
    assert (results[0][0] == results[1][0]).all()
    assert results[0][1] == results[1][1]
    assert _temporaries(better) <= _temporaries(plain)


@pytest.mark.parametrize(("processes", "may_move"), [(1, True), (2, False)])
def test_collectives_change_places_only_where_one_process_has_all_devices(
    processes: int, may_move: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    made = Transform

    def transform(platform: str, options: Any, rules: Any, *rest: Any, **named: Any) -> Any:
        seen.append(rules.may_reorder_collectives)
        return made(platform, options, rules, *rest, **named)

    monkeypatch.setattr(jax, "process_count", lambda: processes)
    monkeypatch.setattr(register, "Transform", transform)
    with hlomem.jax.optimize():
        assert seen == [may_move]
    with hlomem.jax.optimize(may_reorder_collectives=not may_move):
        assert seen == [may_move, not may_move]


@pytest.mark.parametrize("platform", ["npu", "tpu"])
def test_a_platform_that_is_not_there_is_named(platform: str) -> None:
    with pytest.raises(CommandError, match=platform):
        hlomem.jax.optimize(platforms=platform)


@pytest.mark.parametrize("share", [-1, 1.1, float("nan"), "1%"])
def test_a_share_that_is_none_is_refused(share: Any) -> None:
    with pytest.raises(CommandError, match="`recompute` is a share between 0 and 1"):
        hlomem.jax.optimize(recompute=share)


def test_an_unknown_effort_is_refused() -> None:
    with pytest.raises(CommandError, match="effort"):
        hlomem.jax.optimize(effort="huge")  # type: ignore[arg-type]


def test_a_hook_that_does_not_work_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "_tested", {})
    monkeypatch.setattr("hlomem.jax.pass_.register.write_orders", lambda *_: None)
    with pytest.raises(hlomem.jax.UnsupportedJaxError, match="an order was not kept"):
        hlomem.jax.optimize()


def test_an_old_jax_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax.extend.xla", None)
    with pytest.raises(hlomem.jax.UnsupportedJaxError, match=r"it is in jax 0\.10\.2 and later"):
        hlomem.jax.optimize()


def test_auto_is_on_for_the_target_of_a_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setenv("HLOMEM_TARGET", "tpu-v5e:2x2")
    monkeypatch.setattr(register, "optimize", lambda **options: asked.append(options))
    monkeypatch.delitem(sys.modules, "hlomem.jax.auto", raising=False)
    import_module("hlomem.jax.auto")
    del sys.modules["hlomem.jax.auto"]
    assert asked == [{"target": "tpu-v5e:2x2"}]
    assert parent.environment_of(parse_target("tpu-v5e:2x2"))["HLOMEM_TARGET"] == "tpu-v5e:2x2"


def test_a_pass_tells_what_it_did_and_nothing_of_what_was_before() -> None:
    with hlomem.jax.optimize() as first:
        _compile()
    with hlomem.jax.optimize() as second:
        assert repr(second) == "<Optimization on for cpu: 0 improved, 0 B less>"
        assert second.report().outcomes == ()
    assert repr(first).startswith("<Optimization removed: 1 improved, ")
    assert first.report() == hlomem.jax.report()


def test_importing_auto_turns_it_on() -> None:
    auto = import_module("hlomem.jax.auto")
    assert auto.OPTIMIZATION is not None
    try:
        _compile()
        assert hlomem.jax.report().improved
    finally:
        auto.OPTIMIZATION.remove()


def test_the_self_test_runs_nothing_before_what_it_reads() -> None:
    module = hlo.parse(
        """HloModule m, is_scheduled=true

ENTRY %e {
  %p = f32[8] parameter(0)
  %a = f32[8] sort(%p), dimensions={0}, to_apply=%c
  %b = f32[2,4] bitcast(%a)
  %q = f32[8] bitcast(%p)
  %d = f32[8] sort(%q), dimensions={0}, to_apply=%c
  ROOT %t = (f32[2,4], f32[8]) tuple(%b, %d)
}
""".replace("ENTRY", _COMPARE + "ENTRY")
    )
    order = module.entry.instructions
    work = [part for part in order if part.opcode == "sort"]
    found = [part.name for part in register.turned_around(order, work)]
    assert found == ["p", "q", "d", "a", "b", "t"]


_COMPARE = """%c {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %l = pred[] compare(%x, %y), direction=LT
}

"""


class FakeHooks:
    """JAX's module of compiler passes, for a platform that is not here."""

    PipelineStage = SimpleNamespace(POST_SCHEDULER="last")

    def __init__(self, *known: str) -> None:
        self.known = known
        self.on: list[str] = []

    def register_hlo_module_transformation(
        self, _: object, *, name: str, stage: str, platforms: str
    ) -> None:
        assert stage == "last"
        if platforms not in self.known:
            raise RuntimeError("no such platform")
        self.on.append(name)

    def clear_hlo_module_transformation(self, name: str, **_: object) -> None:
        self.on.remove(name)


def test_a_compiler_without_devices_must_take_a_pass_at_least() -> None:
    hooks = FakeHooks("tpu")
    register._test_once(hooks, "tpu")
    assert hooks.on == []
    assert register._keeps_donations(hooks, "tpu")
    with pytest.raises(CommandError, match=r"no platform `cuda`, only cpu.*RuntimeError"):
        register._test_once(hooks, "cuda")


def test_a_hook_that_takes_a_pass_and_never_calls_it_does_not_work() -> None:
    hooks = FakeHooks("cpu", "nowhere")
    assert register._find_fault(hooks, "cpu") == "a registered pass was not called as expected"
    assert register._find_fault(hooks, "nowhere").startswith("RuntimeError: Unknown backend")
    assert hooks.on == []


def test_the_chips_of_this_machine_need_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(device_kind="TPU v5 lite")
    monkeypatch.setattr(register, "_backends", lambda: ["cpu", "tpu"])
    monkeypatch.setattr(jax, "local_devices", lambda **_: [device])
    assert register._chip_here("tpu") == "v5e"
    device.device_kind = "TPU v99"
    with pytest.raises(CommandError, match="which TPU"):
        register._chip_here("tpu")
