"""What a program needs is one number, whoever is asked."""

from __future__ import annotations

import json
from functools import lru_cache
from shutil import copyfile
from typing import TYPE_CHECKING

import pytest

import hlomem
from hlomem.api.advise import case_of
from hlomem.api.explain import MemoryExplanation
from hlomem.api.folder import Module, files_of, measure_all
from hlomem.api.load import read_source
from hlomem.api.opening import open_memory
from hlomem.api.protos import programs_in
from hlomem.assign.footprint import footprint, main_space
from hlomem.base.sizes import format_bytes
from hlomem.dump.parts import parse_headers
from hlomem.fleet.rows import build_rows
from hlomem.jax.compiled_programs import CompiledProgram
from hlomem.opt.candidate import Program
from hlomem.opt.goal import Rules
from hlomem.opt.orders.planned_orders import needed_bytes, other_bytes, temporary_bytes
from hlomem.report.data.lookup import find_space
from hlomem.report.data.occupancy import build_role_shares
from hlomem.report.data.overview import build_overview
from hlomem.report.data.summary import build_summary
from tests.cli.conftest import Run
from tests.golden_programs import GOLDEN_PROGRAMS, GoldenProgram
from tests.places import GOLDENS

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.report.data.memory import MemoryView

DUMPS = sorted(
    path
    for path in GOLDENS.rglob("*buffer-assignment.txt*")
    if not path.is_relative_to(GOLDENS / "rejected")
)
OTHER_PLANS = {  # of releases that share an era with another, by whose rules a dump is planned
    "jaxlib-0.4.24/cpu/nested_while",
    "jaxlib-0.4.30/cpu/nested_while",
    "jaxlib-0.4.34/cpu/carried_scalars",
}
HOST_MOMENTS = GOLDENS / "xla/jaxlib-0.11.2/gpu-h200/host_moments"
SORTS = GOLDENS / "xla/jaxlib-0.12.0.1/gpu-h200/sorts_in_loops"
STACKS = GOLDENS / "xla/libtpu-0.0.51/tpu-tpu7x/embed_scatter_add"
"""Where threads' own stacks take twice what the program needs."""


@lru_cache(maxsize=1)
def _memory(path: Path) -> MemoryView:
    return open_memory(path)


def _printed(run: Run, *arguments: str | Path) -> str:
    done = run(*arguments)
    assert done.code == 0, done.err
    return done.out.decode()


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: str(path.relative_to(GOLDENS)))
def test_every_report_of_a_dump_says_the_same(path: Path) -> None:
    memory = _memory(path)
    space = find_space(memory)
    [listed] = measure_all([Module(path.parent.name, files_of(path))], read_source)
    rows = build_rows(memory)
    [scanned] = rows["modules"]
    said = {
        "summary": build_summary(memory, space).space.size,
        "show": build_overview(memory.dump).needs,
        "show DIR": listed.size,
        "scan": scanned["needs"],
        "roles": sum(share.size for share in build_role_shares(memory, space.color)),
        "advise": case_of(memory).space.size,
        "hlomem.jax.memory, fit": MemoryExplanation(memory, space).needs,
        "footprint": footprint(memory.joined.allocations, main_space(memory.joined.allocations)),
    }
    assert said == dict.fromkeys(said, space.size)


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: str(path.relative_to(GOLDENS)))
def test_headers_alone_tell_of_allocations_what_the_whole_file_tells(path: Path) -> None:
    assignment = _memory(path).dump.assignment
    assert assignment is not None
    headers = parse_headers(read_source(path))
    fields = [name for name in headers[0].__struct_fields__ if name not in _BELOW_HEADERS]
    assert [[getattr(each, name) for name in fields] for each in headers] == [
        [getattr(each, name) for name in fields] for each in assignment.allocations
    ]


_BELOW_HEADERS = {"values", "reused_across_colors"}


@pytest.mark.parametrize("golden", GOLDEN_PROGRAMS, ids=str)
def test_a_plan_is_measured_as_the_dump_of_it_is(golden: GoldenProgram) -> None:
    memory = _memory(golden.home)
    subject = case_of(memory)
    stages = subject.stages
    assert subject.planned_size == needed_bytes(stages)
    assert other_bytes(stages) + temporary_bytes(stages) == needed_bytes(stages)
    assert Program(stages, Rules()).start().total == subject.planned_size
    assert (subject.planned_size == find_space(memory).size) == (str(golden) not in OTHER_PLANS)


@pytest.mark.parametrize("path", sorted((GOLDENS / "protos").glob("*/*.pb")), ids=str)
def test_a_proto_is_measured_as_the_dump_of_it_is(path: Path) -> None:
    needs = {program.size for program in programs_in(path.read_bytes(), str(path), 1 << 30)}
    assert needs >= {find_space(_memory(path.parent)).size}


@pytest.mark.parametrize("path", sorted((GOLDENS / "protos").glob("*/executable.bin")), ids=str)
def test_an_executable_is_measured_as_the_dump_of_it_is(path: Path) -> None:
    compiled = CompiledProgram("jit_f", executable=path.read_bytes())
    assert compiled.size == compiled.explanation.space.size == find_space(_memory(path.parent)).size


def test_advice_does_not_take_threads_stacks_for_a_difference_to_xlas_plan() -> None:
    for given in (SORTS, SORTS / "module.hlo"):
        report = hlomem.advise(given)
        assert not [note for note in report.notes if "our plan" in note]
        planned = [advice for advice in report.advice if advice.method == "re-planned"]
        assert planned
        assert "low" not in {advice.confidence for advice in planned}


def test_what_fits_by_summary_fits_by_improve(run: Run) -> None:
    wanted = ("--capacity", "140KiB", "--json")
    said = json.loads(_printed(run, "summary", HOST_MOMENTS, *wanted))
    assert said["space"]["size"] <= 140 << 10
    module = HOST_MOMENTS / "module.hlo"
    options = ("--backend", "gpu", "--pareto", "--fit", "140KiB")
    assert "none fits" not in _printed(run, "improve", module, *options)
    found = json.loads(_printed(run, "improve", module, *options, "--json"))
    assert found["front"][0]["total"] == said["space"]["size"]


def test_a_folder_lists_what_its_summary_needs(run: Run, tmp_path: Path) -> None:
    for name in ("one", "other"):
        copyfile(STACKS / "buffer-assignment.txt", tmp_path / f"{name}-buffer-assignment.txt")
    needs = format_bytes(find_space(_memory(STACKS)).size)
    assert _printed(run, "show", tmp_path).count(f"{needs}  ") == 2
    assert f"Needs {needs} of HBM" in _printed(run, "summary", tmp_path)
