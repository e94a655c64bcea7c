"""`hlomem.jax.fit`: rows, plans that are remembered, and what is said of them."""

from __future__ import annotations

from math import prod
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import hlomem.jax
from hlomem.base.errors import CommandError
from hlomem.dump.dump import Dump
from hlomem.jax import known_plans
from hlomem.jax.compile.messages import Facts
from hlomem.jax.compile.parent import CompileError
from hlomem.jax.fitting import spec_of
from hlomem.jax.known_plans import default_cache
from hlomem.jax.target_kinds import parse_target
from hlomem.report.page.fit_page import format_fit
from hlomem.report.screens.fit_text import draw_fit
from hlomem.report.screens.text import plain
from tests.jax import factories

MIB = 1 << 20


class FakeCompiler:
    """A compiler that needs 100 MiB and 10 for each of a batch, less where it recomputes.

    A mesh divides what each of a batch needs; a `bad` setting is an error of the factory.
    """

    def __init__(self) -> None:
        self.planned: list[dict[str, Any]] = []
        self.counts_flops = True

    def __call__(self, job: Any, is_known: Any, **_: Any) -> Any:
        if job.settings.get("bad"):
            raise CompileError("`m:f` raised: ValueError: bad\n  in a line of it")
        batch, remat = job.settings.get("batch", 8), job.settings.get("remat", "none")
        mesh = job.settings.get("mesh", {})
        each = (10 if remat == "none" else 3) / prod(mesh.values())
        flops = batch * (100 if remat == "none" else 120) if self.counts_flops else None
        name = f"{job.target}-{remat}-{mesh}-{batch}".replace("/", "_")
        facts = Facts(module_name="jit_f", flops=flops, fingerprint=name, command=f"f {batch}")
        if is_known(facts):
            return facts
        self.planned.append(job.settings)
        size = round((100 + each * batch) * MIB)
        return _Planned(facts, size, "RESOURCE_EXHAUSTED" if size > 1024 * MIB else "")


class _Planned:
    cpu_seconds = 1.5
    dump = Dump("f", (), ())  # nothing to predict from
    target = parse_target("cpu")

    def __init__(self, facts: Facts, size: int, refusal: str) -> None:
        self.facts, self.refusal = facts, refusal
        space = type("Space", (), {"size": size})
        share = type("RoleShare", (), {"role": "activations", "size": size})
        self.memory = type("Memory", (), {"space": space, "roles": (share,)})


@pytest.fixture
def xla(monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
    """In place of the child."""
    made = FakeCompiler()
    monkeypatch.setattr(known_plans, "plan_unless_known", made)
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


@pytest.mark.usefixtures("xla")
def test_rows_go_over_chips_and_meshes_and_the_cheapest_is_marked(tmp_path: Path) -> None:
    rows = {"chip": ["v5e", "v4-core"], "mesh": ["auto", "3x1"]}
    found = _fit(tmp_path, target="tpu-v5e:2x2", rows=rows, axes=["data", "model"])
    planned = [row for row in found.rows if not row.problem]
    assert [(row.target, row.settings["mesh"]) for row in planned] == [
        *(("tpu-v5e:2x2", mesh) for mesh in ("4x1", "2x2", "1x4")),
        *(("tpu-v4-core:2x2x1", mesh) for mesh in ("8x1", "4x2", "2x4", "1x8")),
    ]
    assert {row.problem for row in found.rows if row.problem} == {
        "it has 3 devices, tpu-v5e:2x2 has 4",
        "it has 3 devices, tpu-v4-core:2x2x1 has 8",
    }
    assert all(row.chips == 4 for row in planned)
    assert found.cheapest is None  # as many chips, and no time is known
    prices = {"v5e": 1.2, "v4-core": 1.0}
    priced = _fit(tmp_path, target="tpu-v5e:2x2", rows=rows, axes=["data", "model"], prices=prices)
    assert found.cheapest is None
    assert {row.price for row in priced.rows if row.plans} == {4.8, 4.0}
    assert priced.cheapest is not None
    assert priced.cheapest.target == "tpu-v4-core:2x2x1"
    assert priced.cheapest.command == f"f {priced.cheapest.largest}"
    assert plain(draw_fit(priced, 100)).count("★") == 2


@pytest.mark.usefixtures("xla")
def test_a_capacity_holds_for_the_chips_that_have_it(tmp_path: Path) -> None:
    rows = {"chip": ["v5e", "v6e"]}
    found = _fit(tmp_path, target="tpu-v5e:2x2", rows=rows, capacity="20GiB")
    small, large = found.rows
    assert "more than the 16911433728 of tpu-v5e:2x2" in small.problem
    assert (large.problem, large.capacity) == ("", 20 << 30)


def test_several_workers_make_the_table_of_one(tmp_path: Path, xla: FakeCompiler) -> None:
    rows = {"remat": ["none", "full", "some"]}
    one = _fit(tmp_path / "one", rows=rows, workers=1)
    many = _fit(tmp_path / "many", rows=rows, workers=4)
    assert one == many
    assert len(xla.planned) % 2 == 0


@pytest.mark.usefixtures("xla")
def test_a_row_whose_factory_fails_is_one_line_of_the_table(tmp_path: Path) -> None:
    found = _fit(tmp_path, rows={"bad": [0, 1]})
    assert [row.problem for row in found.rows] == ["", "`m:f` raised: ValueError: bad"]
    screen = plain(draw_fit(found, 80))
    assert "  bad=1: `m:f` raised: ValueError: bad" in screen
    assert "bad=1: `m:f` raised" in format_fit(found)
    assert not found.rows[1].is_answered
    with pytest.raises(CompileError, match="in a line of it"):  # where there is nothing else
        _fit(tmp_path, rows={"bad": [1, 2]})


@pytest.mark.usefixtures("xla")
def test_without_a_setting_to_increase_a_row_is_one_plan(tmp_path: Path) -> None:
    found = _fit(tmp_path, over="", rows={"remat": ["none", "full"]}, capacity="150MiB")
    assert [(len(row.plans), row.best is not None) for row in found.rows] == [(1, False), (1, True)]
    screen = plain(draw_fit(found, 80))
    assert "what fits in 150.0 MiB" in screen
    assert "<svg" not in format_fit(found)


def test_what_fits_at_no_value_and_what_always_fits_is_not_called_proven(
    tmp_path: Path, xla: FakeCompiler
) -> None:
    [row] = _fit(tmp_path, capacity="50MiB").rows
    assert (row.largest, row.best, row.is_proven) == (0, None, True)
    found = _fit(tmp_path, capacity="100PiB")
    assert not found.rows[0].is_proven or found.rows[0].smallest_refused is not None
    assert len(xla.planned) <= 16


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
    assert spec_of(factories.step) == "tests.jax.factories:step"
    assert spec_of("a:b") == "a:b"
    with pytest.raises(CommandError, match="give a function of a module"):
        spec_of(lambda: None)


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


def test_a_factory_that_cannot_have_a_value_says_how_to_choose_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise CompileError("`f` raised: TypeError: cannot reshape")

    monkeypatch.setattr(known_plans, "plan_unless_known", refuse)
    with pytest.raises(CompileError, match=r"tried at \d+; --start and --step choose"):
        hlomem.jax.fit("m:f", target="tpu-v5e:1x1", over="batch", cache=tmp_path)
