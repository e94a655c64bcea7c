"""Imports go one way: down this table."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.places import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MACHINE = {"machines.machine", "machines.options", "machines.releases"}
"""The types of machines and of what they plan by; no module of a platform is among them."""
PROGRAM = {"base", "hlo", *MACHINE}
"""What a program is, and what the machine it runs on is like."""
DUMPS = {"base", "hlo", "dump", *MACHINE, "machines.registry"}
PLANNER = PROGRAM | {"analysis", "history", "assign", "pipeline"}
MAY_IMPORT = {
    "base": set[str](),
    "hlo": {"base"},
    "machines.releases": {"base"},
    "machines.machine": {"hlo", *MACHINE},
    "machines.options": {"base", *MACHINE, "machines.cpu"},  # the machine by default
    "machines.cpu": PROGRAM,
    "machines.capacity": {"base", "machines.registry"},
    "machines.budget": {"base", "machines.capacity"},
    "machines.registry": {"base", *MACHINE, "machines"},
    "machines": PROGRAM,
    "analysis": PROGRAM,
    "history": PROGRAM | {"analysis"},
    "assign.packing": {"assign.best_fit", "base"},
    "assign.best_fit": {"assign.interval_tree", "assign._heap", "base"},
    "assign._heap": set[str](),
    "assign.interval_tree": set[str](),
    "assign.footprint": {"base"},  # the sum of what is needed, for everything that tells it
    "assign": PROGRAM | {"analysis", "assign"},
    "packer": {"base"},
    "kernels": {"base", "dump", "hlo", "kernels"},  # no JAX
    "api.pack": {"base", "assign", "packer"},
    "pipeline": PLANNER,
    "dump": {"base", "machines.releases"},
    "dump._lines": set[str](),
    "dump.dump": {"base", "dump", "hlo"},
    "write": PLANNER | {"dump"},
    "proto.dump": PLANNER | DUMPS | {"write", "view"},
    "proto.write": PLANNER | {"proto"},
    "proto": {"base", "hlo", "proto"},
    "view.sweep": {"base", "view._sweep"},
    "view._sweep": set[str](),
    "view.shapes": {"base", "hlo"},
    "view.instruction_line": {"base", "hlo", "dump"},
    "view.joined": {"base", "dump", "hlo", "view.instruction_line"},
    "view.operands": {"base", "view.joined"},
    "view.drafts": {"hlo", "view.instruction_line", "view.joined"},
    "view.computations": {"base", "view.drafts", "view.joined", "view.operands"},
    "view.control_flow": {"base", "view.computations", "view.instruction_line", "view.joined"},
    "view.families": {"base", "hlo", "view.control_flow", "view.instruction_line", "view.joined"},
    "view": DUMPS,
    "check.findings": {"base"},
    "check.rules": set[str](),
    "check.sarif": {"base", "check.findings", "check.rules"},
    "check.verify": DUMPS | {"view", "check"},
    "check": DUMPS | {"view"},
    "check._form": set[str](),
    "rebuild.listing": DUMPS | {"history", "rebuild", "view"},
    "rebuild": DUMPS | {"analysis", "view"},
    "job.bfc": {"base"},
    "job.sums": {"job.bfc"},
    "job.owner_rows": {"dump"},
    "job.instant": {"dump", "job.bfc", "job.owner_rows"},
    "job": {"base", "hlo", "dump", "proto", "report"},  # neither JAX nor the command line
    "report.oom.verdict": {"base", "dump", "job.instant", "job.owner_rows"},
    "report.data.kernels": {"dump", "kernels", "report"},
    "report.exports": {"proto", "job", "report"},
    "report.page.job_page": {"dump", "job", "report"},
    "report.screens.owner_rows_text": {"base", "dump", "job.owner_rows", "report"},
    "report.screens.now_text": {"base", "job", "report"},
    "report.screens.job_timeline_text": {"base", "dump", "job", "report"},
    "report.screens.leaks_text": {"base", "job", "report"},
    "report.screens.forecast_text": {"base", "job", "report"},
    "report.page.notebook": DUMPS | {"report"},
    "report.page.page": DUMPS
    | {"assign.footprint", "view", "machines", "report", "check.findings", "check.verify"},
    "report.data.explain": DUMPS | {"view", "machines", "report", "analysis"},
    "report.screens.verdict_text": {"base", "report", "check.findings"},
    "report": DUMPS | {"assign.footprint", "view", "machines"},
    "api": {"base", "report.page.notebook"},  # says what draws a dump in a notebook
    "api.folder": {"base", "dump", "assign.footprint"},
    "api.protos": {"base", "hlo", "dump", "proto", "assign.footprint"},
    "api.load": {"base", "dump", "hlo", "api.folder", "api.protos", "proto"},
    "api.doctor": {"__version__", "base", "report"},
    "api.tables": {"base", "dump"},
    "api.shard": DUMPS | {"api.opening", "report"},
    "api.opening": DUMPS | {"api.load", "api.plan", "pipeline", "report"},
    "api.diff": {"hlo", "api.load", "api.opening", "report"},
    "api.advise": {"hlo", "pipeline", "advice", "api.opening", "api.plan", "api.replan", "report"}
    | {"report.page.page", "machines.capacity", "machines.machine", "machines.releases"},
    "api.plan": PLANNER
    | DUMPS
    | {"write", "view", "rebuild", "report.page.notebook", "opt.orders", "proto"},
    "api.fit_search": set[str](),
    "api.scale": {
        "assign.footprint",
        "base",
        "dump",
        "hlo",
        "pipeline",
        "api.plan",
        "api.opening",
        "api.fit_search",
    }
    | {"machines.capacity", "machines.machine", "report"},
    "api.replan": PLANNER | DUMPS | {"write", "view", "rebuild", "api.plan"},
    "api.explain": DUMPS
    | {"api.opening", "api.tables", "machines.capacity", "report", "report.page.notebook"}
    | {"api.advise", "report.page.html"},
    "advice.rules.order": {"advice", "report", "opt"},
    "advice": PLANNER | {"dump", "view", "report"},  # gets what plans as an argument
    "api.improve": PLANNER
    | DUMPS
    | {"api.pack", "api.plan", "api.replan", "opt", "packer", "report"},
    "api.front": {"hlo", "api.improve", "opt", "report"},
    "api.oom": {"base", "api.advise", "api.explain", "job", "kernels", "report"},
    "api.job_inputs": {"base", "api.load", "api.protos", "job", "proto"},
    "api.job_forecast": {"base", "api.fit_search", "api.job_inputs", "api.load", "job"},
    "run": {
        "assign.footprint",
        "base",
        "dump",
        "api.explain",
        "api.oom",
        "api.folder",
        "api.load",
        "report",
    },
    "agents.server": {"__version__", "base"},  # commands run in processes of their own
    "agents.skill": {"base"},
    "agents": set[str](),
    "testing": {"base", "hlo", "dump", "machines.capacity", "report"}
    | {"api.explain", "api.opening"},
    "pytest_plugin": {"base", "api.explain", "jax", "testing"},
    "api.improved_page": {"base", "hlo", "api.improve", "api.opening", "api.plan", "report"},
    "fleet.schema": set[str](),
    "fleet": DUMPS
    | {"assign.footprint", "__version__", "advice", "api", "check", "fleet", "machines", "report"},
    "jax.capture": {"base", "api.load", "jax", "proto"},
    "jax.compiled_programs": DUMPS
    | {"api.explain", "api.load", "api.plan", "api.protos", "jax", "job", "proto", "report"},
    "jax.oom": {"api.oom", "jax", "job", "proto", "report"},
    "jax.oom_verdict": {"jax", "job", "report"},
    "jax.job_script": set[str](),
    "jax.job_recording": {"base", "jax", "job", "machines.registry", "report"},
    "jax.rehearsal": {"base", "jax", "job"},
    "jax.tuned_choices": {"base", "api.load", "jax.compile"},
    "jax.ghosts": {"base", "jax"},
    "jax.instants": {"base", "jax", "job", "report"},
    "jax.block_timeline": {"base", "api.job_inputs", "jax", "job", "proto", "report"},
    "jax.leak_watch": {"base", "job", "proto", "report"},
    "jax.function_memory": DUMPS
    | {"api.explain", "api.load", "api.opening", "api.protos", "jax", "machines"},
    "jax.target_kinds": {"base", "machines", "report"},
    "jax.flops": set[str](),
    "jax.compile.messages": {"report"},
    "jax.compile.programs": {"base", "jax.target_kinds"},
    "jax.compile.factories": {"base", "jax.compile.programs", "jax.target_kinds"},
    "jax.compile.call_counts": {"report"},
    "jax.compile.changed_sources": set[str](),
    "jax.compile.frames": {"report"},
    "jax.compile.dead_constraints": {"jax.compile.frames"},
    "jax.compile.flat_jaxprs": {"jax.compile.frames"},
    "jax.compile.exchanges": {"report", "jax.compile.flat_jaxprs"},
    "jax.compile.exchanged": {"jax.compile.exchanges", "jax.compile.flat_jaxprs"},
    "jax.compile.origins": {"report", "jax.compile.frames"},
    "jax.compile.hoisted": {"report", "jax.compile.flat_jaxprs"},
    "jax.compile.decisions": {
        "report",
        "jax.compile.exchanged",
        "jax.compile.flat_jaxprs",
        "jax.compile.frames",
        "jax.compile.hoisted",
        "jax.compile.origins",
    },
    "jax.compile.shardings": {
        "base",
        "jax.compile.decisions",
        "jax.compile.frames",
        "jax.compile.messages",
        "jax.compile.origins",
    },
    "jax.compile": {"assign.footprint", "base", "dump", "hlo", "api.explain", "jax", "proto"},
    "jax.kernels": {"base", "jax", "kernels", "machines", "report", "view"},
    "jax.known_plans": {"assign.footprint", "base", "jax"},
    "jax.modelled_run": {"hlo", "jax", "opt"},
    "jax.fit_forecasts": {"base", "api.scale", "jax"},
    "jax.fit_rows": {"base", "api.fit_search", "jax", "report"},
    "jax.fit_pool": {"base", "fleet", "jax"},
    "jax.fit_ranks": {"jax", "report"},
    "jax.verdicts": {"base", "api.explain", "jax"},
    "jax.probes.instrument": {"jax.compile.frames"},
    "jax.probes": {"advice", "hlo", "jax", "report"},
    "jax.trials.source_edits": {"base", "report"},
    "jax.trials": {"advice", "api.advise", "base", "hlo", "jax", "machines.capacity", "report"},
    "libtpu.plans": PROGRAM | DUMPS | {"assign.footprint", "check", "libtpu", "proto"},
    "libtpu": {"base", "libtpu", "proto"},
    "jax.linking": DUMPS | {"api.improve", "api.plan", "jax", "libtpu", "proto"},
    "jax.fitting": {"base", "api.fit_search", "jax", "machines.capacity", "report"},
    "jax.factory_front": {
        "assign.footprint",
        "base",
        "api.front",
        "api.improve",
        "jax",
        "machines.budget",
        "opt",
        "proto",
        "report",
    },
    "jax.pass_": PROGRAM
    | {"__version__", "jax", "machines.registry", "machines.budget", "opt", "pipeline", "proto"}
    | {"report"},
    "jax": {"base", "jax", "opt"},
    "stacks": {"base", "jax", "stacks"},
    # Checkers know nothing of what they check: neither the search nor the planner.
    "opt.checks": {"base", "hlo", "check"},
    "opt.pieces": PLANNER | {"opt"},
    "opt.once": set[str](),
    "opt.orders": PLANNER | {"opt.constants", "opt.goal", "opt.candidate", "opt.once"},
    "opt.constants": set[str](),
    "opt.goal": {"base", "hlo", "opt.checks", "opt.constants"},
    "opt.candidate": PLANNER | {"opt"},
    "opt.search": PLANNER | {"opt", "check", "dump", "write"},
    "opt": PLANNER | {"opt"},
}
_NAMES_MODULE = re.compile(r"hlomem(\.[a-z_]+)+")
"""A module named by a string counts as imported."""
ANYTHING = {"cli", "__main__", "__init__"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def _is_allowed(imported: str, allowed: set[str]) -> bool:
    """Whether a row names a module, or the package it is in."""
    return imported in allowed or imported.partition(".")[0] in allowed


def _home(module: str) -> str:
    """The row of the table a module belongs to."""
    while module not in MAY_IMPORT and "." in module:
        module = module.rpartition(".")[0]
    return module


def _names_in(nodes: Iterable[ast.AST]) -> set[str]:
    """The modules of the package that some of its code names, without the package's name."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= {node.value} if _NAMES_MODULE.fullmatch(node.value) else set()
    return {name.removeprefix("hlomem.") for name in names if name.startswith("hlomem.")}


@cache
def _imported(path: Path) -> set[str]:
    return {_home(name) for name in _names_in(ast.walk(ast.parse(path.read_text())))}


def _at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module but for what only the type checker sees."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
        else:
            pending += ast.iter_child_nodes(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_table(path: Path) -> None:
    module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    home = _home(module)
    if home in ANYTHING:
        return
    allowed = MAY_IMPORT[home] | {home}
    assert not [name for name in _imported(path) if not _is_allowed(name, allowed)]


def test_the_judges_of_edits_have_tables_of_their_own() -> None:
    of_editors = {"hlo.counting_indices", "hlo.dimension_links", "hlo.library_calls"}
    for path in (PACKAGE / "opt" / "checks").glob("*.py"):
        assert of_editors.isdisjoint(_names_in(ast.walk(ast.parse(path.read_text()))))


def test_nobody_imports_the_command_line() -> None:
    for path in MODULES:
        if path.parent.name != "cli" and path.stem != "__main__":
            assert "cli" not in _imported(path)


def test_no_package_is_imported_by_what_it_imports() -> None:
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        home = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if home == "__init__":
            continue  # names everything, and imports it when asked
        named = _names_in(_at_run_time(ast.parse(path.read_text())))
        packages = {name.partition(".")[0] for name in named} - {home}
        graph.setdefault(home, set()).update(packages)
    TopologicalSorter(graph).prepare()  # an error names the circle
