"""Scans: what is found, what is read again, and what a poisoned input does."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections import Counter
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from hlomem.base.errors import CommandError, InputError
from hlomem.cli import main
from hlomem.fleet import ask, scan
from hlomem.fleet.reading import Outcome, Task, failed, read_unit
from hlomem.fleet.scanning import Progress
from hlomem.fleet.store import Store
from hlomem.fleet.workers import Child, Group
from tests.places import GOLDENS

pytest.importorskip("duckdb")

CPU = GOLDENS / "xla/jaxlib-0.12.0.1/cpu"


def rows(store: Path, sql: str) -> list[tuple[Any, ...]]:
    return ask(store, sql).fetchall()


def copies_of(source: Path, folder: Path, count: int) -> Path:
    """The dump of a program many times, every one of other content."""
    for number in range(count):
        target = folder / f"program_{number:03}"
        shutil.copytree(source, target)
        with (target / "module.hlo").open("a") as file:
            file.write(f"\n// {number}\n")
    return folder


def everything_once(store: Path, count: int, run: str) -> bool:
    """Whether a run has so many programs, and all rows of each once."""
    assert rows(store, f"SELECT count(*), count(DISTINCT id) FROM modules WHERE run = '{run}'") == [
        (count, count)
    ]
    sums = rows(
        store,
        "SELECT count(*) FROM modules m JOIN (SELECT run, id, sum(size) AS size FROM roles"
        " GROUP BY run, id) r USING (run, id)"
        f" WHERE run = '{run}' AND m.needs = r.size",
    )
    ok = rows(store, f"SELECT count(*) FROM modules WHERE run = '{run}' AND status = 'ok'")
    return sums == ok


def test_all_forms_of_input_are_found(store: Path) -> None:
    kinds = dict(rows(store, "SELECT kind, count(*) FROM modules GROUP BY kind"))
    assert kinds["dump"] >= 8
    assert kinds["proto"] >= 8  # protos, a cache, and the five programs of a profile
    of_profile = "SELECT count(*) FROM modules WHERE source LIKE '%profile.xplane.pb'"
    assert rows(store, of_profile) == [(5,)]
    assert everything_once(store, sum(kinds.values()), "first")


def test_what_did_not_change_is_not_read_again(programs: Path, tmp_path: Path) -> None:
    folder, store = tmp_path / "programs", tmp_path / "store"
    shutil.copytree(programs / "batch_doubled", folder)
    first = scan([folder], store, run="a", workers=1)
    assert first.read == 2
    again = scan([folder], store, run="a", workers=1)
    assert (again.read, again.skipped) == (0, first.read)
    other = scan([folder], store, run="b", workers=1)
    assert (other.read, other.carried, other.modules) == (0, first.read, first.modules)
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved)  # new times and paths, the same content
    for path in moved.rglob("*"):
        os.utime(path)
    third = scan([moved], store, run="c", workers=1)
    assert (third.read, third.carried) == (0, first.read)
    for run in "abc":
        assert everything_once(store, first.modules, run)
    sources = rows(store, "SELECT source FROM modules WHERE run = 'c'")
    assert all(source.startswith(str(moved.resolve())) for (source,) in sources)
    same = "SELECT needs, name, place, arguments FROM modules WHERE run = '{}' ORDER BY ALL"
    assert rows(store, same.format("a")) == rows(store, same.format("c"))


def test_a_changed_file_takes_the_place_of_what_it_was(tmp_path: Path) -> None:
    folder, store = tmp_path / "programs", tmp_path / "store"
    names = sorted(path for path in CPU.iterdir() if path.is_dir())
    shutil.copytree(names[0], folder / "one")
    scan([folder], store, run="a", workers=1)
    before = rows(store, "SELECT needs FROM modules")
    shutil.rmtree(folder / "one")
    shutil.copytree(names[1], folder / "one")
    done = scan([folder], store, run="a", workers=1)
    assert done.read == 1
    assert everything_once(store, 1, "a")
    assert rows(store, "SELECT needs FROM modules") != before


def test_archives_are_read_like_folders(programs: Path, store: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "all.tar.gz", "w:gz") as tape:
        tape.add(programs / "protos", "protos")
    with zipfile.ZipFile(packed / "more.zip", "w") as archive:
        for path in sorted((programs / "batch_doubled").rglob("*")):
            archive.write(path, path.relative_to(programs))
    target = tmp_path / "store"
    done = scan([packed], target, run="a", workers=1)
    assert done.errors == 0
    of_both = "SELECT place, program, needs, peak FROM modules WHERE {} ORDER BY ALL"
    where = "place LIKE 'protos%' OR place LIKE 'batch_doubled%'"
    assert rows(target, of_both.format(True)) == rows(store, of_both.format(where))
    again = scan([packed], target, run="a", workers=1)
    assert (again.read, again.skipped) == (0, done.read)
    other = scan([packed], target, run="b", workers=1)
    assert (other.read, other.carried) == (0, done.read)
    assert everything_once(target, done.modules, "b")


def test_an_archive_unpacks_nothing_outside_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as tape:
        for name in ("../outside.txt", "/outside.txt", "link"):
            info = tarfile.TarInfo(name)
            if name == "link":
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            info.size = 0 if name == "link" else 17
            tape.addfile(info, io.BytesIO(b"BufferAssignment:"))
    done = scan([path], tmp_path / "store", run="a", workers=1)
    sources = rows(tmp_path / "store", "SELECT source FROM modules")
    assert sources == [(f"{path}!/outside.txt",)]  # inside of the archive, as others read it
    assert (done.found, done.errors) == (1, 1)
    assert not (tmp_path.parent / "outside.txt").exists()


def _poison(folder: Path) -> None:
    """Inputs that take too long, need too much memory, or are damaged."""
    (folder / "hangs").mkdir(parents=True)
    lines = [f"  %a{n} = f32[64]{{0}} add(%a{n - 1}, %a{n - 1})" for n in range(1, 150_000)]
    head = "HloModule slow, is_scheduled=true\n\nENTRY %main (a0: f32[64]) -> f32[64] {\n"
    body = "\n".join(["  %a0 = f32[64]{0} parameter(0)", *lines[:-1], "  ROOT" + lines[-1][1:]])
    (folder / "hangs" / "slow.hlo").write_text(f"{head}{body}\n}}\n")
    (folder / "eats").mkdir()
    with (folder / "eats" / "huge-buffer-assignment.txt").open("wb") as file:
        file.write(b"BufferAssignment:\n")
        file.truncate(900 << 20)  # holes, which take no place on the disk
    (folder / "damaged").mkdir()
    whole = (GOLDENS / "protos/cpu_train_step/profile.xplane.pb").read_bytes()
    (folder / "damaged" / "cut.xplane.pb").write_bytes(whole[: len(whole) // 2])
    gz = next((GOLDENS / "trials").rglob("*-buffer-assignment.txt.gz")).read_bytes()
    (folder / "damaged" / "cut-buffer-assignment.txt.gz").write_bytes(gz[: len(gz) // 2])


ERRORS = {"slow": "timeout", "huge": "memory", "cut": "unreadable"}


def check_poisoned(store: Path, run: str, healthy: int) -> None:
    """All rows are there once, with the errors where they belong."""
    found = rows(
        store,
        "SELECT name, error_kind FROM modules"
        f" WHERE run = '{run}' AND status = 'error' ORDER BY name",
    )
    assert {name.partition(".")[0] for name, _ in found} == set(ERRORS)
    assert all(ERRORS[name.partition(".")[0]] == kind for name, kind in found)
    assert len(found) == 4
    assert everything_once(store, healthy + 4, run)


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A folder of poisoned inputs among healthy ones, and how many these are."""
    folder = tmp_path_factory.mktemp("poisoned")
    _poison(folder / "bad")
    copies_of(CPU / "nested_while", folder / "good", 24)
    return folder, 24


LIMITS: dict[str, Any] = {"seconds": 3.0, "memory": 600 << 20}


def test_poisoned_inputs_are_rows_with_their_errors(
    poisoned: tuple[Path, int], tmp_path: Path
) -> None:
    folder, healthy = poisoned
    done = scan([folder], tmp_path / "store", run="a", workers=2, **LIMITS)
    assert (done.modules, done.errors) == (healthy + 4, 4)
    check_poisoned(tmp_path / "store", "a", healthy)
    again = scan([folder], tmp_path / "store", run="a", workers=2, **LIMITS)
    assert again.read == 0
    tried = scan([folder / "bad/damaged"], tmp_path / "store", run="a", retry=True, **LIMITS)
    assert (tried.read, tried.errors) == (2, 2)
    check_poisoned(tmp_path / "store", "a", healthy)


def test_a_file_that_fails_as_a_whole_is_read_program_by_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(task: Task) -> Outcome:
        if not task.counts and task.unit.program in (None, 2):
            return failed(task.unit, None, "not done after 60 seconds", kind="timeout")
        return read_unit(task)

    monkeypatch.setattr("hlomem.fleet.scanning.run_task", read)
    profile = GOLDENS / "protos/cpu_train_step/profile.xplane.pb"
    done = scan([profile], tmp_path / "store", run="a", workers=2)
    assert (done.read, done.modules, done.errors) == (1, 5, 1)
    found = rows(tmp_path / "store", "SELECT id[-1:], error_kind FROM modules ORDER BY id")
    assert found == [(str(number), "timeout" if number == 2 else None) for number in range(5)]
    again = scan([profile], tmp_path / "store", run="a", workers=2)
    assert (again.read, again.skipped) == (0, 1)
    assert everything_once(tmp_path / "store", 5, "a")


class KilledWorker(Exception):  # noqa: N818 - called as Dask's is
    """A task that took every worker down with it."""


def test_a_task_that_no_worker_survives_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_: Task) -> Outcome:
        raise problem

    monkeypatch.setattr("hlomem.fleet.scanning.run_task", read)
    problem: BaseException = KilledWorker()
    done = scan([CPU / "nested_while"], tmp_path / "store", run="a", workers=1)
    assert (done.modules, done.errors) == (1, 1)
    found = rows(tmp_path / "store", "SELECT error_kind, error FROM modules")
    assert found == [("crash", "every worker that took it was lost")]
    problem = CancelledError()
    with pytest.raises(InputError, match="start the same scan again"):
        scan([CPU / "nested_while"], tmp_path / "cancelled", run="a", workers=1)
    problem = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        scan([CPU / "nested_while"], tmp_path / "broken", run="a", workers=1)


def test_a_file_of_one_program_that_fails_is_not_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(task: Task) -> Outcome:
        if not task.counts:
            return failed(task.unit, None, "not done after 60 seconds", kind="timeout")
        return read_unit(task)

    monkeypatch.setattr("hlomem.fleet.scanning.run_task", read)
    proto = min((GOLDENS / "protos").rglob("*.hlo.pb"))
    done = scan([proto, proto], tmp_path / "store", run="a", workers=1)
    assert (done.found, done.modules, done.errors) == (1, 1, 1)
    assert rows(tmp_path / "store", "SELECT error_kind FROM modules") == [("timeout",)]


def test_the_total_is_known_before_the_first_is_read(programs: Path, tmp_path: Path) -> None:
    copies_of(programs / "batch_doubled" / "before", tmp_path / "programs", 8)
    told: list[tuple[int, bool]] = []
    scan(
        [tmp_path / "programs"],
        tmp_path / "store",
        workers=1,
        on_progress=lambda progress: told.append((progress.found, progress.is_listed)),
    )
    assert set(told) == {(8, True)}


def test_the_time_that_is_left_is_known_once_all_is_found() -> None:
    progress = Progress(store="s", run="a", date="2026-01-01", found=10, read=4, seconds=2.0)
    assert progress.seconds_left is None
    progress.is_listed = True
    assert progress.seconds_left == 3.0


def test_a_dask_cluster_loses_a_worker_and_no_row(
    poisoned: tuple[Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    folder, healthy = poisoned
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
        host="127.0.0.1", silence_logs=50,
    ) as cluster:  # fmt: skip
        pids = [nanny.pid for nanny in cluster.workers.values()]
        killed = threading.Event()

        def kill(progress: Any) -> None:
            if progress.read > healthy // 4 and not killed.is_set():
                killed.set()
                os.kill(pids[0], signal.SIGKILL)

        done = scan(
            [folder],
            tmp_path / "store",
            run="a",
            scheduler=cluster,
            on_progress=kill,
            **LIMITS,
        )
    assert killed.is_set()
    assert done.modules == healthy + 4
    check_poisoned(tmp_path / "store", "a", healthy)


def test_a_reader_that_is_killed_costs_no_row(
    poisoned: tuple[Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, healthy = poisoned
    children: list[Child] = []
    start = Child.__init__

    def note(child: Child, group: Group) -> None:
        start(child, group)
        children.append(child)

    monkeypatch.setattr(Child, "__init__", note)
    killed: list[int] = []

    def kill(progress: Any) -> None:
        if progress.read and not killed:
            killed.append(children[-1].pid)
            os.kill(children[-1].pid, signal.SIGKILL)

    done = scan([folder / "good"], tmp_path / "store", run="a", workers=1, on_progress=kill)
    assert killed
    assert (done.modules, done.errors) == (healthy, 0)
    assert everything_once(tmp_path / "store", healthy, "a")


_SCAN = """
import sys
from hlomem.fleet import scan
scan([sys.argv[1]], sys.argv[2], run="a", workers=1, commit_every=0.05)
"""


def test_a_scan_that_is_killed_goes_on_where_it_was(
    poisoned: tuple[Path, int], tmp_path: Path
) -> None:
    folder, healthy = poisoned
    store = tmp_path / "store"
    command = [sys.executable, "-c", _SCAN, str(folder / "good"), str(store)]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 60
    while not list(store.glob("segments/*.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = rows(store, "SELECT count(*) FROM modules")[0][0]
    assert 0 < there < healthy
    (store / "modules/run=a").joinpath("half.parquet").write_bytes(b"PAR1")  # as a kill may leave
    done = scan([folder / "good"], store, run="a", workers=1)
    assert (done.skipped, done.read) == (there, healthy - there)
    assert everything_once(store, healthy, "a")


def test_the_segments_of_a_scan_become_one(
    poisoned: tuple[Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, healthy = poisoned
    store = tmp_path / "store"
    done = scan([folder / "good"], store, run="a", workers=1, commit_every=0.05)
    assert done.segments > 1
    assert len(Store(str(store)).segments()) == 1
    assert everything_once(store, healthy, "a")
    manifests = len(list(store.glob("segments/*.json")))
    assert manifests == done.segments + 1  # somebody may be reading what was replaced
    monkeypatch.setattr("hlomem.fleet.store._KEPT_SECONDS", -1)
    assert scan([folder / "good"], store, run="a", workers=1).skipped == healthy
    assert len(list(store.glob("segments/*.json"))) == 1
    assert len(list(store.rglob("modules/**/*.parquet"))) == 1
    assert everything_once(store, healthy, "a")


def test_two_scans_at_once_do_not_harm_each_other(
    poisoned: tuple[Path, int], tmp_path: Path
) -> None:
    folder, healthy = poisoned
    store = tmp_path / "store"
    problems: list[BaseException] = []

    def run(name: str) -> None:
        try:
            scan([folder / "good"], store, run=name, workers=1, commit_every=0.05)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            problems.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("same", "same", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert everything_once(store, healthy, "same")
    assert everything_once(store, healthy, "other")


def test_the_command_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    arguments = ["scan", str(CPU / "nested_while"), "-o", str(store), "--run", "n1"]
    assert main([*arguments, "--workers", "1"]) == 0
    assert capsys.readouterr().out == f"{store}, run n1: 1 program, 1 input read\n"
    assert main(arguments) == 0
    again = "0 programs, 0 inputs read, 1 there already"
    assert capsys.readouterr().out == f"{store}, run n1: {again}\n"
    assert main([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert (said["kind"], said["skipped"], said["read"]) == ("scan", 1, 0)
    assert Counter(json.loads(line)["kind"] for line in err.splitlines()) == {"progress": 1}


def test_verify_and_advise_fill_their_tables(tmp_path: Path) -> None:
    store = tmp_path / "store"
    example = GOLDENS.parent.parent / "examples/oom/before"
    scan([example], store, run="a", workers=1, verify=True, advise=True)
    assert rows(store, "SELECT is_clean FROM modules") == [(True,)]
    assert rows(store, "SELECT count(*) FROM findings") == [(0,)]
    assert rows(store, "SELECT max(most) > 0 FROM advice") == [(True,)]
    plain = scan([example], store, run="a", workers=1)
    assert plain.read == 1  # asked otherwise, and so read again


def _readers() -> list[str]:
    """Processes of this one that read units."""
    found = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    children = [number for path in found for number in path.read_text().split()]
    lines = [Path(f"/proc/{number}/cmdline") for number in children]
    return [path.parent.name for path in lines if b"hlomem.fleet.child" in path.read_bytes()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks into /proc")
def test_an_interrupted_scan_keeps_what_is_done_and_ends_its_processes(
    poisoned: tuple[Path, int], tmp_path: Path
) -> None:
    folder, healthy = poisoned

    def interrupt(progress: Any) -> None:
        if progress.read:
            raise KeyboardInterrupt

    paths = [folder / "good", folder / "bad/hangs"]
    with pytest.raises(KeyboardInterrupt):
        scan(paths, tmp_path / "store", run="a", workers=2, on_progress=interrupt)
    assert 0 < rows(tmp_path / "store", "SELECT count(*) FROM modules")[0][0] <= healthy
    deadline = time.monotonic() + 30
    while _readers() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _readers() == []


def test_a_folder_without_programs_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["scan", str(tmp_path / "empty"), "-o", str(tmp_path / "store")]) == 3
    assert "no dump, module or proto" in capsys.readouterr().err


def test_wrong_paths_and_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        scan([tmp_path / "nothing"], tmp_path / "store")
    with pytest.raises(CommandError, match="no name for a run"):
        scan([tmp_path], tmp_path / "store", run="../x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(CommandError, match="is no store, and not empty"):
        scan([tmp_path], tmp_path / "full")
    pytest.importorskip("distributed")
    with pytest.raises(CommandError, match="no Dask scheduler at tcp://"):
        scan([tmp_path], tmp_path / "store", scheduler="tcp://127.0.0.1:1")
