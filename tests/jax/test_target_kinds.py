"""Targets: names, what they lack here, and errors that say what there is."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest

import hlomem.jax
from hlomem.base.errors import CommandError
from hlomem.jax import target_kinds
from hlomem.jax.target_kinds import parse_target
from hlomem.machines.gpu_facts import GPUS, target_config


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("tpu-v5e:4x4", "tpu-v5e:4x4"),
        ("TPU-v5p", "tpu-v5p:2x2x1"),
        ("tpu-7x", "tpu-7x:2x2x1"),
        ("tpu-v4", "tpu-v4:2x2x1"),
        ("tpu-v4-core:2x2x2", "tpu-v4-core:2x2x2"),
        ("tpu-v5e:16", "tpu-v5e:4x4"),
        ("tpu-v5p:128@2", "tpu-v5p:4x4x8@2"),
        ("tpu-v6e:8@1", "tpu-v6e:2x4"),
        ("cuda-h200", "cuda-h200:1"),
        ("cuda-b200:8", "cuda-b200:8"),
        ("cpu", "cpu"),
    ],
)
def test_a_target_has_the_smallest_topology_unless_another_is_given(name: str, whole: str) -> None:
    target = parse_target(name)
    assert target.name == whole
    assert parse_target(target.name) == target
    assert target.machine.platform in {"cpu", "gpu", "tpu"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tpu-v9", "no target `tpu-v9`: known are tpu-v4:2x2x1, tpu-v4-core:2x2x1"),
        ("tpu-v5", "did you mean"),
        ("tpu-v5e:3", "chips by chips, as in tpu-v5e:2x2"),
        ("tpu-v5e:0x2", "chips by chips"),
        ("tpu-v5e:2x2@0", "no number of slices"),
        ("tpu-v5e:2x2@", "no number of slices"),
        ("cuda-h100:8@2", "cuda-h100 has no slices: leave out @2"),
        ("cpu:@2", "no target `cpu:@2`"),
        ("cuda-h100:2x2", "no number of GPUs"),
        ("cuda-h99", "no target `cuda-h99`"),
        ("cpu:4", "no target `cpu:4`"),
        ("", "no target ``"),
    ],
)
def test_what_is_no_target_is_refused_with_what_is(name: str, said: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_target(name)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "chips", "devices", "per_host"),
    [
        ("tpu-v4:2x2x1", 4, 4, 4),
        ("tpu-v4-core:2x2x1", 4, 8, 8),
        ("tpu-v4:2x2x2@2", 16, 16, 4),
        ("tpu-v5e:1x1", 1, 1, 1),
        ("tpu-v5e:16x16", 256, 256, 4),
        ("tpu-v5p:2x2x2", 8, 8, 4),
        ("tpu-v6e:2x4@2", 16, 16, 4),
        ("tpu-7x:2x2x2", 8, 16, 8),
        ("cuda-h100:8", 8, 8, 8),
        ("cpu", 1, 1, 1),
    ],
)
def test_chips_and_devices_are_counted_without_a_compiler(
    name: str, chips: int, devices: int, per_host: int
) -> None:
    """As libtpu 0.0.51 reports them, which test_libtpu.py asks."""
    target = parse_target(name)
    counts = (target.chip_count, target.device_count, target.devices_per_host)
    assert counts == (chips, devices, per_host)


def test_every_listed_target_can_be_asked_for() -> None:
    listed = hlomem.jax.targets()
    assert [parse_target(row.name).name for row in listed] == [row.name for row in listed]
    assert all(row.capacity for row in listed[:-1])
    assert str(listed).count("\n") == len(listed) - 1
    lacks = [parse_target(row.name).missing for row in listed]
    assert [row.is_installed for row in listed] == [not missing for missing in lacks]


def test_the_line_that_installs_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_kinds, "_is_there", lambda _: False)
    monkeypatch.setattr(target_kinds, "version", lambda _: "0.12.0.1")
    assert parse_target("tpu-v5e").missing == "pip install libtpu"
    assert parse_target("cuda-h100").missing == "pip install jax-cuda13-plugin==0.12.0.1"
    assert parse_target("cpu").missing == ""
    with pytest.raises(hlomem.jax.MissingSoftwareError, match=r"libtpu is not installed\n  pip"):
        _ = parse_target("tpu-v5e").devices

    def missing(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(target_kinds, "version", missing)
    assert parse_target("cpu").missing == "pip install 'hlomem[jax]'"
    assert parse_target("tpu-v5e").missing == "pip install 'hlomem[jax]' libtpu"


def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_WORKER_ID", "7")
    before = dict(os.environ)
    with target_kinds._environment(target_kinds.TPU_ENVIRONMENT):
        assert os.environ["TPU_SKIP_MDS_QUERY"] == "1"
        assert os.environ["TPU_WORKER_ID"] == "7"
    assert dict(os.environ) == before


@pytest.mark.parametrize("gpu", GPUS)
def test_a_gpu_is_described_by_a_text_proto_with_its_numbers(gpu: str) -> None:
    text = target_config(gpu)
    assert text.count("{") == text.count("}") > 0
    assert f"device_memory_size: {GPUS[gpu].memory_size}\n" in text
    assert f'name: "{GPUS[gpu].title}"' in text


def test_a_topology_that_the_compiler_does_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(**asked: object) -> None:
        assert (asked["platform"], asked["topology"]) == ("cuda", "1x1x2")
        raise ValueError("no such topology\nat all")

    fake = SimpleNamespace(get_topology_desc=refuse)
    monkeypatch.setattr(target_kinds, "import_module", lambda _: fake)
    monkeypatch.setattr(target_kinds, "_is_there", lambda _: True)
    with pytest.raises(CommandError, match=r"^no topology for cuda-h100:2: no such topology$"):
        parse_target("cuda-h100:2").devices  # noqa: B018
