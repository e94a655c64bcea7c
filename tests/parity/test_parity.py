"""Every golden, planned again: the same text as XLA wrote, stage by stage.

Two things the text of a module does not say, and no rule can:

* In which order an instruction lists its users. The goldens `twin_users_one` and
  `twin_users_other` prove it: XLA compiled two programs to the same module, and printed the uses of
  one value in two orders. `hlomem.history.users.cpu` says what the text does imply.
* How a hash map was iterated. Until jaxlib 0.8.0 the usage report listed rows of equal size and the
  shapes of a row in the order of one; the change "Make sure to produce a deterministic Memory usage
  report" of October 2025 gave them an order.

Everything else must be equal to the byte.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

import hlomem
from tests.parity.dumps import (
    STAGES,
    first_difference,
    read_golden,
    sort_written,
    with_sorted_lists,
    with_sorted_rows,
    without_uses,
)
from tests.places import GOLDENS

XLA_GOLDENS = GOLDENS / "xla"
HOMES = sorted(path.parent for path in XLA_GOLDENS.glob("*/*/*/origin.json"))

KNOWN_LINE_ORDER = frozenset(
    {
        "jaxlib-0.11.0/cpu/sorted_twice",
        "jaxlib-0.11.1/cpu/sorted_twice",
        "jaxlib-0.11.2/gpu-h200/collectives_in_branches",
        "jaxlib-0.11.2/gpu-h200/collectives_in_loop",
        "jaxlib-0.11.2/gpu-h200/conjugate_gradient",
        "jaxlib-0.11.2/gpu-h200/host_scan",
        "jaxlib-0.11.2/gpu-h200/lookup_loop",
        "jaxlib-0.11.2/gpu-h200/loops_in_functions",
        "jaxlib-0.11.2/gpu-h200/narrow_floats",
        "jaxlib-0.11.2/gpu-h200/sharded_sorts",
        "jaxlib-0.11.2/gpu-h200/sm_permute_ring",
        "jaxlib-0.11.2/gpu-h200/sm_psum_scan",
        "jaxlib-0.11.2/gpu-h200/tf_scan_layers",
        "jaxlib-0.11.2/gpu-h200/top_k_steps",
        "jaxlib-0.12.0.1/cpu/cond_in_loop",
        "jaxlib-0.12.0.1/cpu/convolution_gradient",
        "jaxlib-0.12.0.1/cpu/deep_loops",
        "jaxlib-0.12.0.1/cpu/dynamic",
        "jaxlib-0.12.0.1/cpu/forty_params",
        "jaxlib-0.12.0.1/cpu/functions_twice",
        "jaxlib-0.12.0.1/cpu/functions_with_loops",
        "jaxlib-0.12.0.1/cpu/g_cholesky_solve",
        "jaxlib-0.12.0.1/cpu/half_top_k",
        "jaxlib-0.12.0.1/cpu/m_overlap",
        "jaxlib-0.12.0.1/cpu/made_by_passes",
        "jaxlib-0.12.0.1/cpu/partitioned_argmax",
        "jaxlib-0.12.0.1/cpu/partitioned_embedding",
        "jaxlib-0.12.0.1/cpu/passthrough_and_dup",
        "jaxlib-0.12.0.1/cpu/qr_loop",
        "jaxlib-0.12.0.1/cpu/sharded_loops",
        "jaxlib-0.12.0.1/cpu/sorts_in_loops",
        "jaxlib-0.12.0.1/cpu/pooling_gradient",
        "jaxlib-0.12.0.1/cpu/split_scatters",
        "jaxlib-0.12.0.1/cpu/top_k_loop",
        "jaxlib-0.12.0.1/cpu/twin_users_one",
        "jaxlib-0.12.0.1/cpu/vmap_solve",
        "jaxlib-0.12.0.1/gpu-h200/sorts_in_functions",
        "jaxlib-0.12.0.1/gpu-h200/sorts_in_loops",
        "jaxlib-0.12.0.1/gpu-h200/sorts_in_nested_loops",
        "jaxlib-0.12.0.1/gpu-h200/top_k_and_products",
        "jaxlib-0.4.13/cpu/nested_while",
        "jaxlib-0.4.20/cpu/nested_while",
        "jaxlib-0.4.24/cpu/nested_while",
        "jaxlib-0.4.30/cpu/nested_while",
        "jaxlib-0.4.34/cpu/carried_scalars",
        "jaxlib-0.4.35/cpu/nested_while",
        "jaxlib-0.4.38/cpu/nested_while",
        "jaxlib-0.5.0/cpu/nested_while",
        "jaxlib-0.7.0/cpu/sort_argsort_topk",
        "jaxlib-0.7.1/cpu/solve",
        "jaxlib-0.9.0/cpu/narrow_reductions",
        "jaxlib-0.9.1/cpu/narrow_reductions",
        "libtpu-0.0.11.1/tpu-v5e/nested_while",
        "libtpu-0.0.17/tpu-v5e/nested_while",
        "libtpu-0.0.17/tpu-v5e/sort_argsort_topk",
        "libtpu-0.0.2/tpu-v5e/nested_while",
        "libtpu-0.0.2/tpu-v5p/nested_while",
        "libtpu-0.0.24/tpu-v5e/nested_while",
        "libtpu-0.0.34/tpu-v5e/nested_while",
        "libtpu-0.0.4/tpu-v5e/nested_while",
        "libtpu-0.0.4/tpu-v5p/nested_while",
        "libtpu-0.0.4/tpu-v6e/nested_while",
        "libtpu-0.0.51/tpu-tpu7x/cache_on_host",
        "libtpu-0.0.51/tpu-tpu7x/cholesky_solve",
        "libtpu-0.0.51/tpu-tpu7x/embed_scatter_add",
        "libtpu-0.0.51/tpu-tpu7x/overlapping_contexts",
        "libtpu-0.0.51/tpu-tpu7x/pipelined_attention",
        "libtpu-0.0.51/tpu-tpu7x/sums_on_sparse_cores",
        "libtpu-0.0.51/tpu-tpu7x/nested_while",
        "libtpu-0.0.51/tpu-v4/nested_while",
        "libtpu-0.0.51/tpu-v5e/all_reduce_in_hbm",
        "libtpu-0.0.51/tpu-v5e/beam_search",
        "libtpu-0.0.51/tpu-v5e/big_chain",
        "libtpu-0.0.51/tpu-v5e/big_outputs",
        "libtpu-0.0.51/tpu-v5e/diffrax_fwd",
        "libtpu-0.0.51/tpu-v5e/g_scan_grad",
        "libtpu-0.0.51/tpu-v5e/gathers_and_scatters",
        "libtpu-0.0.51/tpu-v5e/large_loop",
        "libtpu-0.0.51/tpu-v5e/lookup_loop",
        "libtpu-0.0.51/tpu-v5e/m_gather_sharded",
        "libtpu-0.0.51/tpu-v5e/nested_while",
        "libtpu-0.0.51/tpu-v5e/sharded_top_k",
        "libtpu-0.0.51/tpu-v5e/sm_permute_ring",
        "libtpu-0.0.51/tpu-v5e/top_k_and_products",
        "libtpu-0.0.51/tpu-v5e/zero_size",
        "libtpu-0.0.51/tpu-v5p/contexts_of_two_sizes",
        "libtpu-0.0.51/tpu-v5p/branches_with_rows",
        "libtpu-0.0.51/tpu-v5p/complex_loop",
        "libtpu-0.0.51/tpu-v5p/functions_with_loops",
        "libtpu-0.0.51/tpu-v5p/nested_while",
        "libtpu-0.0.51/tpu-v5p/points_of_table",
        "libtpu-0.0.51/tpu-v5p/split_loop",
        "libtpu-0.0.51/tpu-v5p/split_statistics",
        "libtpu-0.0.51/tpu-v5p/two_nests",
        "libtpu-0.0.51/tpu-v6e/g_attention_grad",
        "libtpu-0.0.51/tpu-v6e/h_switch_in_scan",
        "libtpu-0.0.51/tpu-v6e/nested_while",
        "libtpu-0.0.51/tpu-v6e/recsys",
        "libtpu-0.0.51/tpu-v6e/sgd_in_place",
        "libtpu-0.0.51/tpu-v6e/sorts_and_sums",
    }
)
"""Goldens with a value whose uses stand in an order that the module's text does not imply."""

KNOWN_POSITIONS = frozenset(
    {
        "jaxlib-0.11.2/gpu-h200/collectives_in_branches",
        "jaxlib-0.11.2/gpu-h200/collectives_in_loop",
        "jaxlib-0.11.2/gpu-h200/sharded_sorts",
        "jaxlib-0.12.0.1/cpu/dynamic",
        "jaxlib-0.12.0.1/cpu/functions_with_loops",
        "jaxlib-0.12.0.1/cpu/partitioned_argmax",
        "jaxlib-0.12.0.1/cpu/sharded_loops",
        "jaxlib-0.12.0.1/cpu/split_scatters",
        "jaxlib-0.12.0.1/gpu-h200/sorts_in_loops",
        "jaxlib-0.12.0.1/gpu-h200/sorts_in_nested_loops",
        "libtpu-0.0.17/tpu-v5e/sort_argsort_topk",
        "libtpu-0.0.2/tpu-v5e/nested_while",
        "libtpu-0.0.2/tpu-v5p/nested_while",
        "libtpu-0.0.51/tpu-tpu7x/cache_on_host",
        "libtpu-0.0.51/tpu-tpu7x/embed_scatter_add",
        "libtpu-0.0.51/tpu-tpu7x/overlapping_contexts",
        "libtpu-0.0.51/tpu-tpu7x/pipelined_attention",
        "libtpu-0.0.51/tpu-tpu7x/sums_on_sparse_cores",
        "libtpu-0.0.51/tpu-v5e/diffrax_fwd",
        "libtpu-0.0.51/tpu-v5e/g_scan_grad",
        "libtpu-0.0.51/tpu-v5e/gathers_and_scatters",
        "libtpu-0.0.51/tpu-v5e/large_loop",
        "libtpu-0.0.51/tpu-v5p/contexts_of_two_sizes",
        "libtpu-0.0.51/tpu-v5p/branches_with_rows",
        "libtpu-0.0.51/tpu-v5p/functions_with_loops",
        "libtpu-0.0.51/tpu-v5p/points_of_table",
        "libtpu-0.0.51/tpu-v5p/two_nests",
        "libtpu-0.0.51/tpu-v6e/recsys",
    }
)
"""Goldens with a value whose positions do, too."""

KNOWN_IDS = frozenset(
    {"libtpu-0.0.2/tpu-v5p/nested_while", "libtpu-0.0.51/tpu-tpu7x/pipelined_attention"}
)
"""Goldens with two computations of equal size, whose fingerprints hlomem orders otherwise."""

FIRST_ORDERED_REPORT = {"jaxlib": (0, 8, 1), "libtpu": (0, 0, 34)}
LAST_PART = 3


def _name(home: Path) -> str:
    return "/".join(home.parts[-LAST_PART:])


def _has_ordered_report(home: Path) -> bool:
    package, version = home.parts[-LAST_PART].split("-")
    return tuple(int(part) for part in version.split(".")) >= FIRST_ORDERED_REPORT[package]


@cache
def _written(home: Path) -> dict[str, str]:
    """What hlomem writes for a golden's module, by stage."""
    origin = json.loads((home / "origin.json").read_text())
    plan = hlomem.plan(
        (home / "module.hlo").read_text(),
        backend=origin["backend"],
        chip=origin.get("chip") or "",
        era=home.parts[-LAST_PART],
        schedule=None if origin["scheduled"] else hlomem.load(home),
        preset=hlomem.load(home) if origin["backend"] == "tpu" else None,
        name="module",
    )
    backend = plan.stages.options.machine
    assert hlomem.verify(plan.dump, module=plan.stages.module, machine=backend).findings == ()
    texts = {file: plan.text(file) for file in plan.files}
    assert texts == plan.dump.texts()  # with records between, and without
    return sort_written(texts)


def _planned(known: frozenset[str], reason: str) -> list[object]:
    """The goldens to plan, those with a known difference marked."""
    mark = pytest.mark.xfail(strict=True, reason=reason)
    return [
        pytest.param(home, id=_name(home), marks=mark if _name(home) in known else ())
        for home in HOMES
    ]


_USERS = "the module's text does not imply the order in which XLA lists users"
_TIE = "libtpu sorts computations of equal size by a fingerprint of their text"
_PARTS = "the module's text does not tell when parts of a result were taken out"


@pytest.mark.parametrize("home", _planned(KNOWN_IDS, _TIE))
def test_stages(home: Path) -> None:
    want, got = read_golden(home), _written(home)
    assert got.keys() == want.keys()
    for stage in STAGES:
        if stage not in want:
            continue
        one, other = want[stage], got[stage]
        if stage == "values":
            one, other = with_sorted_lists(one), with_sorted_lists(other)
        elif stage == "report" and not _has_ordered_report(home):
            one, other = with_sorted_rows(one), with_sorted_rows(other)
        difference = first_difference(one, other)
        assert not difference, f"{stage}: {difference}"


@pytest.mark.parametrize("home", _planned(KNOWN_LINE_ORDER, _USERS))
def test_order_of_positions_and_uses(home: Path) -> None:
    difference = first_difference(read_golden(home)["values"], _written(home)["values"])
    assert not difference, f"values: {difference}"


@pytest.mark.parametrize("home", _planned(KNOWN_POSITIONS, _PARTS))
def test_order_of_positions(home: Path) -> None:
    want, got = (without_uses(each["values"]) for each in (read_golden(home), _written(home)))
    difference = first_difference(want, got)
    assert not difference, f"values: {difference}"


def test_the_text_does_not_imply_the_order_of_uses() -> None:
    one, other = (XLA_GOLDENS / "jaxlib-0.12.0.1/cpu" / f"twin_users_{n}" for n in ("one", "other"))
    assert (one / "module.hlo").read_text() == (other / "module.hlo").read_text()
    first, second = read_golden(one), read_golden(other)
    assert first["values"] != second["values"]
    assert with_sorted_lists(first["values"]) == with_sorted_lists(second["values"])
