"""`hlomem.jax.fit`: rows, plans that are remembered, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import hlomem.jax
from hlomem.base.errors import CommandError
from hlomem.jax import fitting
from hlomem.jax.compile.messages import Facts
from hlomem.jax.fitting import default_cache, spec_of
from hlomem.jax.target_kinds import parse_target
from hlomem.report.page.fit_page import format_fit
from hlomem.report.screens.fit_text import draw_fit
from hlomem.report.screens.text import plain
from tests.jax import factories

MIB = 1 << 20


class FakeCompiler:
    """A compiler that needs 100 MiB and 10 for each of a batch, less where it recomputes."""

    def __init__(self) -> None:
        self.planned: list[dict[str, Any]] = []
        self.counts_flops = True

    def __call__(self, job: Any, is_known: Any, **_: Any) -> Any:
        batch, remat = job.settings["batch"], job.settings.get("remat", "none")
        each = 10 if remat == "none" else 3
        flops = batch * (100 if remat == "none" else 120) if self.counts_flops else None
        facts = Facts(module_name="jit_f", flops=flops, fingerprint=f"{remat}-{batch}")
        if is_known(facts):
            return facts
        self.planned.append(job.settings)
        size = (100 + each * batch) * MIB
        return _Planned(facts, size, "RESOURCE_EXHAUSTED" if size > 1024 * MIB else "")


class _Planned:
    cpu_seconds = 1.5
    dump = None  # nothing to predict from
    target = parse_target("cpu")

    def __init__(self, facts: Facts, size: int, refusal: str) -> None:
        self.facts, self.refusal = facts, refusal
        self.memory = type("Memory", (), {"space": type("Space", (), {"size": size})})


@pytest.fixture
def xla(monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
    """In place of the child."""
    made = FakeCompiler()
    monkeypatch.setattr(fitting, "plan_unless_known", made)
    return made


def _fit(cache: Path, **options: Any) -> Any:
    return hlomem.jax.fit("m:f", **{"target": "cpu", "capacity": "1GiB", "cache": cache, **options})


def test_every_row_is_proven_and_what_was_planned_is_not_planned_again(
    tmp_path: Path, xla: FakeCompiler
) -> None:
    seen: list[tuple[int, int, str]] = []
    found = _fit(
        tmp_path,
        rows={"remat": ["none", "full"]},
        settings={"width": 3},
        on_progress=lambda *words: seen.append(words),
    )
    assert [(row.largest, row.smallest_refused, row.is_proven) for row in found.rows] == [
        (92, 93, True),
        (308, 309, True),
    ]
    assert [row.work for row in found.rows] == [1.0, 1.2]
    assert [(row.base // MIB, row.per_item / MIB) for row in found.rows] == [(100, 10), (100, 3)]
    assert all(settings["width"] == 3 for settings in xla.planned)
    count = len(xla.planned)
    again = _fit(tmp_path, rows={"remat": ["none", "full"]}, settings={"width": 3})
    assert len(xla.planned) == count
    assert [row.largest for row in again.rows] == [92, 308]
    assert all(plan.cpu_seconds == 0 for row in again.rows for plan in row.plans)
    [damaged, *_] = sorted(tmp_path.iterdir())
    damaged.write_bytes(b"{")
    _fit(tmp_path, rows={"remat": ["none", "full"]})
    assert len(xla.planned) == count + 1


def test_screen_and_page_say_what_the_rows_do(tmp_path: Path, xla: FakeCompiler) -> None:
    found = _fit(tmp_path, rows={"remat": ["none", "<b>"]}, step=4)
    screen = plain(draw_fit(found, 100))
    assert "largest batch in 1.00 GiB" in screen
    [line] = [line.split() for line in screen.splitlines() if "remat=none" in line]
    assert line[:6] == ["remat=none", "92", "1020.0", "MiB", "96:", "1.04"]
    assert f"{len(xla.planned)} plans by XLA; " in screen
    page = format_fit(found)
    assert page.count("<circle ") == sum(len(row.plans) for row in found.rows)
    assert "<b>" not in page
    assert "&lt;b&gt;" in page


def test_what_fits_at_no_value_and_what_always_fits_is_not_called_proven(
    tmp_path: Path, xla: FakeCompiler
) -> None:
    [row] = _fit(tmp_path, capacity="50MiB").rows
    assert (row.largest, row.best, row.is_proven) == (0, None, True)
    found = _fit(tmp_path, capacity="100PiB")
    assert not found.rows[0].is_proven or found.rows[0].smallest_refused is not None
    assert len(xla.planned) <= 12


@pytest.mark.usefixtures("xla")
def test_a_target_has_its_own_memory_unless_another_is_given(tmp_path: Path) -> None:
    found = _fit(tmp_path, target="tpu-v5e", capacity=None)
    assert found.capacity == parse_target("tpu-v5e").capacity
    assert not any("nominal" in note for note in found.notes)
    nominal = _fit(tmp_path, capacity="v3")
    assert any("the memory of v3 is nominal" in note for note in nominal.notes)


def test_without_counted_products_no_row_is_said_to_work_more(
    tmp_path: Path, xla: FakeCompiler
) -> None:
    xla.counts_flops = False
    found = _fit(tmp_path, rows={"remat": ["none", "full"]})
    assert [row.work for row in found.rows] == [None, None]
    assert "FLOPs are those" not in plain(draw_fit(found, 100))


def test_wrong_uses_are_said(tmp_path: Path) -> None:
    for options, said in (
        ({"capacity": None}, "depends on its memory: give a capacity"),
        ({"target": "tpu-v5e", "capacity": "17GiB"}, "more than the 16911433728 of tpu-v5e:2x2"),
        ({"step": 0}, "`step` is 1 or more"),
        ({"rows": {"batch": [1]}}, "`batch` is given twice"),
        ({"settings": {"batch": 1}}, "`batch` is given twice"),
        ({"rows": {"a": [1]}, "settings": {"a": 1}}, "`a` is given twice"),
    ):
        with pytest.raises(CommandError) as caught:
            _fit(tmp_path, **options)
        assert said in str(caught.value)


def test_a_factory_is_named_by_where_another_process_finds_it() -> None:
    assert fitting.spec_of(factories.step) == "tests.jax.factories:step"
    assert fitting.spec_of("a:b") == "a:b"
    with pytest.raises(CommandError, match="give a function of a module"):
        fitting.spec_of(lambda: None)


def test_a_real_program_fits_where_xla_says_so(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
    found = hlomem.jax.fit(factories.step, target="cpu", capacity=400_000, step=64, cache=tmp_path)
    [row] = found.rows
    assert row.is_proven
    for plan in row.plans:
        function, arguments = factories.step([None], batch=plan.value)
        assert hlomem.jax.memory(function, *arguments).space.size == plan.size
        assert plan.fits == (plan.size <= 400_000)


def test_plans_are_kept_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "hlomem" / "plans"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache() == Path.home() / ".cache" / "hlomem" / "plans"


def test_a_factory_of_a_script_is_named_by_its_file() -> None:
    script: Any = FunctionType(factories.step.__code__, {"__name__": "__main__"}, "step")
    script.__module__ = "__main__"
    assert spec_of(script) == f"{Path(factories.__file__).resolve()}:step"


def test_a_factory_of_a_notebook_is_refused() -> None:
    code = compile("def make(): pass", "<cell>", "exec").co_consts[0]
    cell: Any = FunctionType(code, {"__name__": "__main__"}, "make")
    cell.__module__ = "__main__"
    with pytest.raises(CommandError, match="put it into a file"):
        spec_of(cell)
