"""The change that was made is the cause that is named first, with its bytes."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

import hlomem
from hlomem.api.load import find_program
from hlomem.report.data.diff import Diff, build_diff
from hlomem.report.data.memory import MemoryView, build_memory
from tests.places import GOLDENS


class Change(NamedTuple):
    """Two goldens, relative to their folder, and what was changed from one to the other."""

    before: str
    after: str
    kind: str
    words: str
    """What the text has to say, whatever else it says."""

    @property
    def module(self) -> str | None:
        """The module to compare, of those in the folder."""
        return "train_step" if "/gpt" in self.after else None

    def __str__(self) -> str:
        return f"{self.before.removesuffix('/before')}-{Path(self.after).name}-{self.kind}"


def _pair(name: str, kind: str, words: str) -> Change:
    return Change(f"pairs/{name}/before", f"pairs/{name}/after", kind, words)


def _trial(before: str, after: str, kind: str, words: str) -> Change:
    return Change(f"trials/{before}", f"trials/{after}", kind, words)


CHANGES = (
    _pair("donation_dropped", "donation", "no longer donated: params;"),
    _pair("remat_removed", "recomputation", "no longer recomputed (jax.checkpoint, "),
    _pair("dtype_widened", "dtype", "f32 became f64, in 2 buffers"),
    _pair("activations_narrowed", "dtype", "f32 became bf16"),
    _pair("batch_doubled", "batch", "batch 256 became 512 (arguments: x)"),
    _pair("sequence_doubled", "sequence", "sequence 64 became 128 (arguments: tokens)"),
    _pair("width_doubled", "width", "width 128 became 256 (arguments: "),
    _pair("layers_added", "layers", "2 layers became 3: block 2 is new"),
    _pair("stacked_layers_added", "layers", "4 layers became 8"),
    _pair("scan_unrolled", "loop", "no longer runs in a loop (lax.scan at record_pairs.py:"),
    _pair("barrier_added", "fusion", "sub (record_pairs.py:"),
    _pair("channels_first", "layout", "[8,16,24,4] became [8,4,16,24]"),
    _pair("devices_added", "sharding", "split over 4 devices instead of 1"),
    _pair("sharding_lost", "sharding", "likely split differently over 4 devices"),
    _trial("cpu/gpt", "cpu/gpt_donate", "donation", "now donated: params, opt_state;"),
    _trial("tpu/gpt", "tpu/gpt_donate", "donation", "now donated: params, opt_state;"),
    _trial("cpu/decode", "cpu/decode_donate", "donation", "now donated: kcache, vcache;"),
    _trial("tpu/decode", "tpu/decode_donate", "donation", "now donated: kcache, vcache;"),
    _trial("cpu/gpt_donate", "cpu/gpt_remat", "recomputation", "(jax.checkpoint, gpt.py:46)"),
    _trial("tpu/gpt_donate", "tpu/gpt_remat", "recomputation", "(jax.checkpoint, gpt.py:46)"),
    _trial("tpu/fsdp", "tpu/fsdp_offload", "offload", "kept in the host's memory now: 256.0 MiB"),
    _trial("cpu/gpt_donate", "cpu/gpt_b16", "batch", "batch 8 became 16 (arguments: tokens)"),
    _trial("tpu/gpt_donate", "tpu/gpt_b16", "batch", "batch 8 became 16 (arguments: tokens)"),
    _trial("cpu/gpt_donate", "cpu/gpt_bf16", "dtype", "f32 became bf16"),
    _trial("tpu/gpt_donate", "tpu/gpt_bf16", "dtype", "f32 became bf16"),
    _trial("cpu/gpt_bf16", "cpu/gpt_upcast", "dtype", "cast to f32 at train_gpt.py:29"),
    Change(
        "xla/jaxlib-0.11.0/cpu/sorted_twice",
        "xla/jaxlib-0.11.1/cpu/sorted_twice",
        "version",
        "the same program, compiled by another version of XLA: jaxlib 0.10.2 to 0.11.0 became",
    ),
    Change(
        "xla/libtpu-0.0.34/tpu-v5e/nested_while",
        "xla/libtpu-0.0.51/tpu-v5e/nested_while",
        "version",
        "another version of XLA: libtpu 0.0.24 or 0.0.34 became libtpu 0.0.51",
    ),
    Change(
        "xla/jaxlib-0.11.2/cpu/nested_while",
        "xla/jaxlib-0.11.2/gpu-h200/nested_while",
        "backend",
        "compiled for gpu instead of cpu",
    ),
)
BESIDE_OTHERS = {"donation"}
"""The kind whose bytes are its own; what else happens follows, but is told apart."""


@lru_cache(maxsize=8)
def _open(folder: str, module: str | None = None) -> MemoryView:
    path = GOLDENS / folder
    text = path / "module.hlo"
    program = (
        hlomem.hlo.parse(text.read_text()) if text.exists() else find_program(str(path), module)
    )
    return build_memory(hlomem.load(path, module=module), program)


@lru_cache(maxsize=8)
def _diff(change: Change) -> Diff:
    return build_diff(_open(change.before, change.module), _open(change.after, change.module))


# The tests of one change run after one another, and share what they open.
each_change = pytest.mark.parametrize("change", CHANGES, ids=str, scope="module")


@each_change
def test_the_change_that_was_made_is_named_first(change: Change) -> None:
    found = _diff(change)
    first = found.causes[0]
    assert first.kind == change.kind
    assert change.words in first.text


@each_change
def test_the_way_back_is_the_same_change(change: Change) -> None:
    found = build_diff(_open(change.after, change.module), _open(change.before, change.module))
    assert found.causes[0].kind == change.kind
    assert found.causes[0].delta == pytest.approx(-_diff(change).causes[0].delta, rel=0.001)


ALONE = [
    change
    for change in CHANGES
    if change.kind not in BESIDE_OTHERS and "upcast" not in change.after  # another loss, too
]


@pytest.mark.parametrize("change", ALONE, ids=str)
def test_all_follows_from_the_one_thing_that_was_changed(change: Change) -> None:
    found = _diff(change)
    assert found.causes[0].delta == pytest.approx(found.delta, rel=0.001)


def _analysis(change: Change, field: str) -> list[int]:
    """What JAX's memory_analysis() says of both sides."""
    texts = [(GOLDENS / side / "origin.json").read_text() for side in (change.before, change.after)]
    return [json.loads(text)["memory_analysis"][0][field] for text in texts]


DONATED = [each for each in CHANGES if each.kind == "donation" and each.before.startswith("trials")]


@pytest.mark.parametrize("change", DONATED, ids=str)
def test_a_donation_has_the_bytes_that_jax_says_are_aliased(change: Change) -> None:
    before, after = _analysis(change, "alias_size_in_bytes")
    assert _diff(change).causes[0].direct == before - after


def test_an_offload_has_the_bytes_that_jax_says_are_on_the_host() -> None:
    (change,) = [change for change in CHANGES if change.kind == "offload"]
    before, after = _analysis(change, "host_temp_size_in_bytes")
    assert _diff(change).causes[0].direct == before - after


@each_change
def test_causes_add_up_to_the_difference(change: Change) -> None:
    found = _diff(change)
    assert sum(cause.delta for cause in found.causes) == found.delta
    assert all(cause.delta or cause.direct for cause in found.causes)


@each_change
def test_a_cause_says_likely_where_it_is_not_certain(change: Change) -> None:
    for cause in _diff(change).causes:
        assert cause.text.startswith("likely ") != cause.is_certain


def test_two_changes_are_two_causes() -> None:
    before = _open("trials/tpu/gpt", "train_step")
    found = build_diff(before, _open("trials/tpu/gpt_remat", "train_step"))
    assert [cause.kind for cause in found.causes] == ["donation", "recomputation"]
    assert found.causes[0].delta == _diff(DONATED[1]).causes[0].delta


def test_a_program_does_not_differ_from_itself() -> None:
    memory = _open("trials/tpu/gpt", "train_step")
    assert build_diff(memory, memory).causes == ()


def test_a_program_beside_itself_has_no_cause_on_the_host_either() -> None:
    offloading = _open("trials/tpu/fsdp_offload", None)
    assert build_diff(offloading, offloading).causes == ()
