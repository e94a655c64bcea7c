"""Findings on dumps of faulty programs and of clean ones (tools/record_shardings.py)."""

from __future__ import annotations

import json
from functools import cache

import pytest

import hlomem
from hlomem.report.data.shard import ShardReport, hint_of
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
