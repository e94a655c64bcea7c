"""The plugin of pytest, in runs of its own: with and without workers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from hlomem import explain, hlo, load
from tests.places import ROOT

pytest_plugins = ("pytester",)
BEFORE, AFTER = (str(ROOT / "examples" / "oom" / name) for name in ("before", "after"))
IS_INSTALLED = any(
    entry.value == "hlomem.pytest_plugin" for entry in entry_points(group="pytest11")
)
MEASURES = """
import hlomem, pytest

@pytest.mark.limit_hbm("24 GiB")
def test_step(hbm):
    memory = hbm.check(hlomem.explain({dump!r}))
    assert memory.space.name == "hbm"

def test_two(hbm):
    for name in ("first", "second"):
        hbm.check(hlomem.explain({after!r}), name=name)

def test_without():
    pass
"""

LOADED = (explain, hlo.parse, load)
"""Imported here, so that runs in this process do not import them again, as other classes."""


def _reserved(folder: str) -> int:
    """The bytes of HBM in XLA's own list of allocations, but for threads' own."""
    [path] = Path(folder).glob("*-buffer-assignment.txt")
    lines = re.findall(r"^allocation \d+: size (\d+)(.*)$", path.read_text(), re.MULTILINE)
    return sum(int(size) for size, rest in lines if not re.search("color|thread-local", rest))


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose tests measure two dumps, the first of which may change."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    _use(pytester, AFTER)
    return pytester


def _use(project: pytest.Pytester, dump: str) -> None:
    project.path.joinpath("test_memory.py").write_text(MEASURES.format(dump=dump, after=AFTER))


def _run(project: pytest.Pytester, *arguments: str, alone: bool = False) -> pytest.RunResult:
    """A run of pytest, in a process of its own if it has workers or must be alone."""
    plugin = () if IS_INSTALLED else ("-p", "hlomem.pytest_plugin")
    options = (*plugin, "-p", "no:cacheprovider", "-p", "no:cov", *arguments)
    if "-n" in arguments or alone:
        return project.runpytest_subprocess(*options)
    return project.runpytest_inprocess(*options)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_baseline_is_written_and_held_against(
    project: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    done = _run(project, "--hlomem-update", *workers)
    done.assert_outcomes(passed=3)
    path = project.path / "hlomem-baseline.json"
    written = path.read_text()
    content = json.loads(written)
    assert [*content["programs"]] == [
        "test_memory.py::test_step",
        "test_memory.py::test_two#first",
        "test_memory.py::test_two#second",
    ]
    step = content["programs"]["test_memory.py::test_step"]
    assert (step["bytes"], step["target"], step["space"]) == (_reserved(AFTER), "tpu", "hbm")
    assert max(step["lines"].values()) > step["bytes"] // 2
    assert next(iter(step["lines"])).endswith("train.py:9")
    assert workers or _run(project).ret == 0
    assert path.read_text() == written
    _use(project, BEFORE)
    done = _run(project, *workers)
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(
        [
            "hlomem: needs 23.90 GiB of HBM on tpu, +9.11 GiB (+61.6%) against the baseline",
            "*+7.58 GiB  stacked by a loop",
            "*+16.14 GiB  prog/train.py:8",
            "*23.90 GiB  tpu  test_memory.py::test_step",
        ]
    )
    assert path.read_text() == written
    _run(project, "--hlomem-update").assert_outcomes(passed=3)
    assert json.loads(path.read_text())["programs"]["test_memory.py::test_step"]["bytes"] > 2e10


def test_programs_of_one_test_are_told_apart_by_numbers(project: pytest.Pytester) -> None:
    project.path.joinpath("test_memory.py").write_text(
        "import hlomem\n\ndef test_many(hbm):\n"
        f"    memory = hlomem.explain({AFTER!r})\n"
        "    for name in ('', '', 'a', 'a'):\n        hbm.check(memory, name=name)\n"
    )
    _run(project, "--hlomem-update").assert_outcomes(passed=1)
    content = json.loads((project.path / "hlomem-baseline.json").read_text())
    test = "test_memory.py::test_many"
    assert {*content["programs"]} == {test, f"{test}#2", f"{test}#a", f"{test}#a-2"}


def test_with_the_programs_kept_a_failure_says_what_diff_says(project: pytest.Pytester) -> None:
    kept = ("--hlomem-programs", "programs")
    _run(project, "--hlomem-update", *kept).assert_outcomes(passed=3)
    bytes_of = {path: path.read_bytes() for path in project.path.glob("programs/*/*.gz")}
    assert len({path.parent for path in bytes_of}) == 3
    _run(project, "--hlomem-update", *kept)
    assert {path: path.read_bytes() for path in bytes_of} == bytes_of
    _use(project, BEFORE)
    done = _run(project, *kept)
    done.stdout.fnmatch_lines(
        [
            "hlomem: needs 23.90 GiB of HBM on tpu, +9.11 GiB (+61.6%) against the baseline",
            "What happened",
            "*+*  no longer donated*",
            "By line, from before to after",
        ]
    )


def test_a_marked_test_must_measure_something(project: pytest.Pytester) -> None:
    _use(project, AFTER)
    path = project.path / "test_memory.py"
    path.write_text(
        path.read_text().replace("memory = hbm.check(", "memory = (").replace("24", "1")
    )
    done = _run(project, "-rf")
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(["FAILED *test_step - Failed: hlomem: nothing was measured*"])


def test_the_summary_of_failures_has_the_reason(project: pytest.Pytester) -> None:
    _use(project, BEFORE)
    path = project.path / "test_memory.py"
    path.write_text(path.read_text().replace('"24 GiB"', '"14 GiB"'))
    done = _run(project, "-rf")
    done.stdout.fnmatch_lines(["FAILED *test_step - Failed: hlomem: needs 23.90 GiB*"])


def test_a_limit_fails_and_says_by_which_lines(project: pytest.Pytester) -> None:
    _use(project, BEFORE)
    path = project.path / "test_memory.py"
    path.write_text(path.read_text().replace('"24 GiB"', '"14 GiB"'))
    done = _run(project)
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(
        [
            "hlomem: needs 23.90 GiB of HBM on tpu, the limit is 14.00 GiB: over by 9.90 GiB",
            "*16.14 GiB   67.5%  prog/train.py:8",
        ]
    )


def test_small_growth_is_tolerated_as_configured(project: pytest.Pytester) -> None:
    _run(project, "--hlomem-update")
    path = project.path / "hlomem-baseline.json"
    content = json.loads(path.read_text())
    content["programs"]["test_memory.py::test_step"]["bytes"] -= 250 << 20
    path.write_text(json.dumps(content))
    _run(project).assert_outcomes(passed=2, failed=1)
    _run(project, "--hlomem-tolerance", "2%").assert_outcomes(passed=3)
    project.makeini("[pytest]\nhlomem_tolerance = 400MiB")
    _run(project).assert_outcomes(passed=3)
    _run(project, "--hlomem-tolerance", "much").assert_outcomes(passed=1, failed=2)


def test_another_compiler_or_target_is_said_and_not_compared(project: pytest.Pytester) -> None:
    _run(project, "--hlomem-update")
    path = project.path / "hlomem-baseline.json"
    content = json.loads(path.read_text())
    content["programs"]["test_memory.py::test_step"]["versions"] = {"libtpu": "0.0.1"}
    content["programs"]["test_memory.py::test_two#first"]["target"] = "tpu-v6e:1x1"
    path.write_text(json.dumps(content))
    _use(project, BEFORE)
    done = _run(project)
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(
        [
            "*test_step  (the baseline is of libtpu 0.0.1, this is *: not compared)",
            "*first  (the baseline is of tpu-v6e:1x1 (hbm): not compared)",
        ]
    )


def test_reviewers_get_annotations_and_a_table(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(project, "--hlomem-update")
    _use(project, BEFORE)
    summary = project.path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = _run(project, "--hlomem-summary", "memory.md", "-n", "1")
    [line] = [line for line in done.outlines if line.startswith("::error ")]
    assert line.startswith(
        "::error file=test_memory.py,line=4,title=hlomem::test_memory.py::test_s"
    )
    assert "+9.11 GiB (+61.6%25) against the baseline%0A" in line
    table = (project.path / "memory.md").read_text()
    assert summary.read_text() == f"before\n{table}"
    rows = [row for row in table.splitlines() if row.startswith("| ")][1:]
    assert rows[0] == (
        "| ❌ | `test_memory.py::test_step` | tpu | 23.90 GiB | 14.79 GiB | +9.11 GiB (+61.6%) "
        "| 24.00 GiB | `prog/train.py:8` |"
    )
    assert all("| ✅ |" in row and "| none |" in row for row in rows[1:])


def test_a_damaged_baseline_is_one_clear_failure_and_can_be_written_anew(
    project: pytest.Pytester,
) -> None:
    path = project.path / "hlomem-baseline.json"
    path.write_text("<<<<<<< HEAD\n{}")
    done = _run(project)
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(["*not a baseline of hlomem*", "*--hlomem-update rewrites the file*"])
    done.stdout.no_fnmatch_line("*Traceback*")
    _run(project, "--hlomem-update").assert_outcomes(passed=3)
    _run(project).assert_outcomes(passed=3)


def test_tests_that_did_not_run_keep_their_entries_until_their_file_goes(
    project: pytest.Pytester,
) -> None:
    _run(project, "--hlomem-update")
    path = project.path / "hlomem-baseline.json"
    whole = path.read_text()
    _run(project, "--hlomem-update", "-k", "test_two")
    assert path.read_text() == whole
    project.path.joinpath("test_memory.py").rename(project.path / "test_renamed.py")
    _run(project, "--hlomem-update", "-k", "test_two")
    assert [*json.loads(path.read_text())["programs"]] == [
        "test_renamed.py::test_two#first",
        "test_renamed.py::test_two#second",
    ]


def test_an_unwritable_baseline_is_one_clear_error(project: pytest.Pytester) -> None:
    (project.path / "file").write_text("")
    done = _run(project, "--hlomem-update", "--hlomem-baseline", "file/baseline.json")
    assert done.ret != 0
    done.stderr.fnmatch_lines(["ERROR: hlomem: *file*"])


def test_runs_that_do_not_use_it_import_nothing_and_say_nothing(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import sys
        def test_plain():
            heavy = {"msgspec", "rich", "jax", "hlomem.api", "hlomem.testing", "click"}
            assert not heavy & set(sys.modules)
        """
    )
    done = _run(pytester, "-p", "no:xdist", "-p", "no:hypothesispytest", alone=True)
    done.assert_outcomes(passed=1)
    done.stdout.no_fnmatch_line("*memory*")
    assert not (pytester.path / "hlomem-baseline.json").exists()


def test_the_plugin_alone_imports_pytest_and_no_more_of_hlomem() -> None:
    code = (
        "import pytest, sys; before = set(sys.modules); import hlomem.pytest_plugin\n"
        "print(sorted(name for name in set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['hlomem', 'hlomem.pytest_plugin']\n"


def test_a_target_is_refused_for_a_test_that_measures_nothing_itself(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.limit_hbm("1 GiB", target="tpu-v5e:1x1")
        def test_step():
            pass
        """
    )
    done = _run(pytester)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*a target is for programs that the fixture `hbm` compiles"])


def test_the_project_declares_the_plugin() -> None:
    text = Path(ROOT, "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\nhlomem = "hlomem.pytest_plugin"\n' in text
