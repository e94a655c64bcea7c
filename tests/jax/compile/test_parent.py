"""A program planned in a child: the plan is XLA's, errors are clear, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import hlomem
import hlomem.jax
from hlomem.base.errors import CommandError
from hlomem.jax.compile import parent
from hlomem.jax.compile.messages import Facts, Job
from hlomem.jax.compile.parent import CompileError, PlannedProgram, plan_in_child, plan_unless_known
from hlomem.jax.compile.placeholder import plan_module
from tests.jax import factories
from tests.places import PACKAGE

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")

hlo: Any = pytest.importorskip("jaxlib._hlo")
HERE = "tests.jax.factories"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Temporary folders of a test, none of which may be left."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


def _plan(factory: str, **settings: Any) -> PlannedProgram:
    return plan_in_child(Job(factory=f"{HERE}:{factory}", target="cpu", settings=settings))


def _places(memory: Any) -> list[Any]:
    """Lines are left out: JAX keeps traces of inner functions, with the frames of the first."""
    return [
        (each.id, each.name, each.allocation, each.offset, each.size, each.parameter)
        for each in memory
    ]


def test_the_plan_is_that_of_a_compile_here_and_the_dump_is_kept_where_asked(
    tmp_path: Path,
) -> None:
    job = Job(factory=f"{HERE}:step", target="cpu", settings={"batch": 4}, has_fingerprint=True)
    planned = plan_in_child(job, output=tmp_path / "dump")
    function, arguments = factories.step([None], batch=4)
    here = hlomem.jax.memory(function, *arguments)
    assert _places(planned.memory) == _places(here)
    assert any("factories.py:" in row.key for row in planned.memory.by("line"))
    assert planned.facts.results == ("['layers']",)
    assert planned.facts.flops == 3 * 4 * (2 * 4 * 64 * 64)  # 3 products in each of 4 layers
    assert planned.cpu_seconds > 0
    assert hlomem.load(tmp_path / "dump", module="train_step").assignment == (
        planned.dump.assignment
    )
    again = plan_unless_known(job, lambda facts: facts == planned.facts)
    assert again == planned.facts
    other = plan_unless_known(
        Job(factory=f"{HERE}:step", target="cpu", settings={"batch": 5}, has_fingerprint=True),
        lambda _: True,
    )
    assert isinstance(other, Facts)
    assert other.fingerprint != planned.facts.fingerprint


def test_a_program_that_was_lowered_is_planned_as_it_is() -> None:
    planned = _plan("lowered")
    assert planned.memory.space.size > 0
    assert planned.facts.flops is None


def test_an_error_of_a_factory_shows_the_users_lines_and_none_of_ours() -> None:
    with pytest.raises(CompileError) as caught:
        _plan("raises")
    said = str(caught.value)
    assert f"`{HERE}:raises` raised: ValueError: the configuration has no width\n" in said
    assert said.endswith('raise ValueError("the configuration has no width")')
    assert str(PACKAGE) not in said
    assert said.count("\n") < 14


def test_a_child_that_dies_leaves_its_last_words() -> None:
    with pytest.raises(CompileError, match=r"died \(exit code 7\)\n  about to die$"):
        _plan("dies")


def test_a_child_that_is_killed_may_have_had_no_memory() -> None:
    with pytest.raises(CompileError, match=r"died \(SIGKILL, as when a machine runs out of memory"):
        _plan("is_killed")


def test_a_factory_that_is_not_there_is_a_wrong_command() -> None:
    with pytest.raises(CommandError, match="nowhere"):
        _plan("nowhere")


def _wait_for(path: Path) -> list[int]:
    for _ in range(1200):
        if path.exists():
            return [int(word) for word in path.read_text().split()]
        time.sleep(0.05)
    raise AssertionError("the child did not start")


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _assert_gone(pids: list[int]) -> None:
    for _ in range(400):
        if not any(map(_is_running, pids)):
            return
        time.sleep(0.05)
    raise AssertionError(f"{pids} are still running")


@pytest.mark.skipif(not Path("/proc").exists(), reason="asks /proc who is running")
def test_a_child_that_hangs_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job = Job(factory=f"{HERE}:hangs", target="cpu", settings={"pids": str(pids)})
    begun = False

    def look(_: str) -> None:
        nonlocal begun
        if pids.exists() and not begun:
            begun = True
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan_in_child(job, on_progress=look)
    _assert_gone(_wait_for(pids))


def test_a_time_out_says_how_long_was_waited() -> None:
    job = Job(factory=f"{HERE}:step", target="cpu")
    with pytest.raises(CompileError, match=r"was not lowered in 0\.1 s; --timeout"):
        plan_in_child(job, timeout=0.1)


@pytest.mark.skipif(not Path("/proc").exists(), reason="asks /proc who is running")
def test_a_child_ends_with_its_parent(tmp_path: Path, folders: Path) -> None:
    pids = tmp_path / "pids"
    parent = subprocess.Popen(
        [sys.executable, "-m", "hlomem", "compile", f"{HERE}:hangs", "--set", f"pids={pids}"],
        env={**os.environ, "TMPDIR": str(folders), "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.DEVNULL,
    )
    running = _wait_for(pids)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    _assert_gone(running)


def test_code_of_the_current_folder_is_imported_for_a_users_factory_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, mark = tmp_path / "here", tmp_path / "imported"
    folder.mkdir()
    for name in ("msgspec", "hashlib", "jax"):
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')\n")
    proto = bytes(hlo.hlo_module_from_text(MODULE).as_serialized_hlo_module_proto())
    monkeypatch.setattr("sys.path", [place for place in sys.path if place])
    monkeypatch.chdir(folder)
    plan_module(proto, "cpu", "cpu")
    assert not mark.exists()


MODULE = """HloModule m, is_scheduled=true

ENTRY %e {
  %p = f32[8] parameter(0)
  ROOT %c = f32[8] copy(%p)
}
"""


def test_a_plan_whose_files_are_empty_is_not_taken(tmp_path: Path) -> None:
    class Watched(parent._Child):
        def __init__(self) -> None:
            self._folder, self._mark, self._plan_sizes = tmp_path, ".mark", {}

    (tmp_path / "dump").mkdir()
    for end in (*parent._PLAN, ".mark"):
        (tmp_path / "dump" / f"module_0001.f.{end}").touch()
    child, facts = Watched(), Facts(module_name="f")
    assert not child._is_planned(facts)
    assert not child._is_planned(facts)
    for end in parent._PLAN:
        (tmp_path / "dump" / f"module_0001.f.{end}").write_text("whole")
    assert not child._is_planned(facts)
    assert child._is_planned(facts)
