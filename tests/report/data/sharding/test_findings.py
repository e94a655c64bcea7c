"""Findings on dumps of faulty programs and of clean ones (tools/record_shardings.py)."""

from __future__ import annotations

import json
from functools import cache

import pytest

import hlomem
from hlomem.hlo.sharding import Axis, Mesh, Sharding
from hlomem.report.data.shard import ShardReport, hint_of
from hlomem.report.data.sharding.gather_findings import steps_between
from tests.places import GOLDENS

SHARDED = GOLDENS / "sharded"
PROGRAMS = sorted(path.name for path in SHARDED.iterdir())


@cache
def _report(name: str) -> ShardReport:
    return hlomem.shard(SHARDED / name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_arguments_have_the_bytes_and_shards_that_jax_says(name: str) -> None:
    origin = json.loads((SHARDED / name / "origin.json").read_text())
    rows = _report(name).arguments
    assert sum(row.size for row in rows) == origin["argument_bytes"]
    assert {row.name: list(row.local or ()) for row in rows} == origin["shards"]


@pytest.mark.parametrize(
    ("name", "kind", "line"),
    [
        ("dropped_classes", "dropped", "dropped_classes.py:22"),
        ("gathered_explicitly", "gathered", "gathered_explicitly.py:20"),
        ("optimizer_momentum", "optimizer", "optimizer_momentum.py:23"),
        ("padding_of_heads", "padding", "padding_of_heads.py:21"),
        ("replicated_embedding", "replicated", "replicated_embedding.py:20"),
        ("reshard_concatenated", "reshard", "reshard_concatenated.py:23"),
        ("stack_of_outputs", "stack", "stack_of_outputs.py:26"),
        # Results that others' memory went to; written without sight of the rules, as those below.
        ("don_train_state", "donated", "don_train_state.py:29"),
        # Gathered at once by a constraint, read part by part by loops of both passes.
        ("gath_whole_stack", "gathered", "gath_whole_stack.py:18"),
        # The second of two constraints of one name, through a helper.
        ("reshard_batch_to_grid", "reshard", "reshard_batch_to_grid.py:20"),
        # No array is split at all, and no constraint keeps one whole: the line of the loop.
        ("stack_wave_adjoint", "stack", "stack_wave_adjoint.py:26"),
    ],
)
def test_the_fault_is_named_first_with_its_line(name: str, kind: str, line: str) -> None:
    first = _report(name).findings[0]
    assert (first.kind, first.source) == (kind, f"/home/me/{line}")


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.startswith("clean")])
def test_clean_programs_have_no_finding(name: str) -> None:
    report = _report(name)
    assert report.findings == ()
    assert hint_of(report) is None


def test_a_parameter_tells_its_optimizer_state_how_to_be_split() -> None:
    [finding] = _report("optimizer_momentum").findings
    spec = "P(None, 'fsdp', 'tensor')"
    assert finding.change.arguments == {"momentum['down']": spec, "momentum['up']": spec}
    # Both are four times as large as they need be, and their results lie beside them.
    assert finding.promised == finding.size == 256 << 20
    assert "params['down']" in finding.title


def test_results_follow_the_argument_of_their_place_and_type() -> None:
    first = _report("opt_half_sharded_lm").findings[0]
    # Results 0 to 4 are the weights, of the same whole shapes; 6 is split as its parameter.
    assert set(first.change.results) == {"result 5", "result 7", "result 8", "result 9"}


def test_a_lost_donation_tells_all_results_of_a_line() -> None:
    [finding] = _report("don_train_state").findings
    names = [f"result {number}" for number in range(4)]
    assert finding.change.results == dict.fromkeys(names, "P('a', 'b')")
    assert finding.change.constraint == "P('a', 'b')"


def test_a_cache_is_tried_as_the_heads_are_split_elsewhere_and_with_its_constraint() -> None:
    change = _report("rep_kv_cache_model_axis").findings[0].change
    assert change.other_arguments == {"cache": "P(None, None, 'data', None, 'model')"}
    assert [(place.line, place.is_constraint) for place in change.pins] == [(37, True)]


def test_a_reshard_goes_one_axis_at_a_time() -> None:
    change = _report("reshard_batch_to_grid").findings[0].change
    assert change.through == ("P(('x', 'y'))", "P('x', None, 'y')")


X, Y = Axis("x", 2), Axis("y", 4)


@pytest.mark.parametrize(
    ("before", "asked", "steps"),
    [
        (((X,), ()), ((), (X,)), ()),  # one all-to-all
        (((X, Y), (), ()), ((), (X,), (Y,)), ("P(('x', 'y'))", "P('x', None, 'y')")),
        (((), (X,), (Y,)), ((X, Y), (), ()), ("P(None, 'x', 'y')", "P('x', None, 'y')")),
        (((X,), (Y,)), ((Y,), (X,)), ()),  # neither can go first
        (((X, Y), ()), ((), (Y,)), ()),  # not the same axes
    ],
)
def test_steps_between_shardings(
    before: tuple[tuple[Axis, ...], ...],
    asked: tuple[tuple[Axis, ...], ...],
    steps: tuple[str, ...],
) -> None:
    mesh = Mesh((X, Y))
    assert steps_between(Sharding(mesh, before), Sharding(mesh, asked)) == steps


def test_a_dropped_constraint_says_why() -> None:
    [finding] = _report("dropped_classes").findings
    assert "1001 is not divisible by 8" in finding.why


def test_the_partitioners_warning_is_joined_to_the_reshard() -> None:
    log = hlomem.api.load.read_source(SHARDED / "reshard_concatenated" / "log.txt.gz").text
    finding = hlomem.shard(SHARDED / "reshard_concatenated", log=log).findings[0]
    assert "Involuntary full rematerialization" in finding.warning


def test_collectives_name_their_axes_and_arguments() -> None:
    rows = {row.name: row for row in _report("clean_tensor").collectives}
    gathers = [row for row in rows.values() if row.opcode == "all-gather"]
    assert {row.axes for row in gathers} == {("data",)}
    assert {row.argument for row in gathers} == {"params['up']", "params['down']"}
    assert not any(row.is_kept_for_backward for row in gathers)


def test_without_the_module_before_partitioning_nothing_is_guessed() -> None:
    dump = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "g_cholesky_solve"
    report = hlomem.shard(dump)
    assert (report.findings, report.mesh) == ((), "")
    assert all(row.spec is None for row in report.arguments)
    assert report.notes


def test_gathered_weights_are_a_role() -> None:
    memory = hlomem.explain(SHARDED / "replicated_embedding")
    found = {buffer.name: buffer for buffer in memory if buffer.role == "gathered weights"}
    gathers = {row.name: row for row in _report("replicated_embedding").collectives}
    weights = {
        name
        for name, row in gathers.items()
        if row.opcode == "all-gather" and row.role == "model parameters"
    }
    assert weights
    assert weights <= found.keys()


def test_protos_tell_the_same() -> None:
    report = hlomem.shard(GOLDENS / "sharded_protos" / "train_step")
    assert report.mesh == "data=4, model=2"
    assert sum(row.size for row in report.arguments) == 11141120
    specs = {row.name: row.spec for row in report.arguments}
    assert specs["params['down']"] == "P(None, 'model', 'data')"
    [finding] = report.findings
    assert (finding.kind, finding.names) == ("optimizer", ("opt['up']", "opt['down']"))
