"""Every golden, planned again: the same text as XLA wrote, stage by stage.

Two things are not compared, since the text of a module does not tell them:

* The order of the lines in a value's lists of positions and uses. The goldens `twin_users_one` and
  `twin_users_other` prove it: XLA compiled two programs to the same module, and printed the uses of
  one value in two orders.
* How a hash map was iterated. Until jaxlib 0.8.0 the usage report listed rows of equal size and the
  shapes of a row in the order of one; the change "Make sure to produce a deterministic Memory usage
  report" of October 2025 gave them an order.

Everything else must be equal to the byte.
"""

from __future__ import annotations

import json
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
)
from tests.places import GOLDENS
from tools.check_plans import places

XLA_GOLDENS = GOLDENS / "xla"
HOMES = sorted(path.parent for path in XLA_GOLDENS.glob("*/*/*/origin.json"))

KNOWN_IDS = frozenset(
    {
        "libtpu-0.0.2/tpu-v5p/nested_while",
        "libtpu-0.0.51/tpu-tpu7x/pipelined_attention",
    }
)
"""Goldens in which two computations stand the other way: only ids differ."""

TWIN_SENDS = "jaxlib-0.12.0.1/cpu/twin_sends_"
"""Two programs of one module, of which another plan is made of each."""

FIRST_ORDERED_REPORT = {"jaxlib": (0, 8, 1), "libtpu": (0, 0, 34)}
LAST_PART = 3


def _name(home: Path) -> str:
    return "/".join(home.parts[-LAST_PART:])


def _has_ordered_report(home: Path) -> bool:
    package, version = home.parts[-LAST_PART].split("-")
    return tuple(int(part) for part in version.split(".")) >= FIRST_ORDERED_REPORT[package]


def _plan(home: Path) -> hlomem.Plan:
    """The plan of a golden's module."""
    origin = json.loads((home / "origin.json").read_text())
    return hlomem.plan(
        (home / "module.hlo").read_text(),
        backend=origin["backend"],
        chip=origin.get("chip") or "",
        era=home.parts[-LAST_PART],
        schedule=None if origin["scheduled"] else hlomem.load(home),
        preset=hlomem.load(home) if origin["backend"] == "tpu" else None,
        name="module",
    )


def _written(home: Path) -> dict[str, str]:
    """What hlomem writes for a golden's module, by stage."""
    plan = _plan(home)
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


_TIE = "the module's text does not tell in which order XLA numbers these values"


@pytest.mark.parametrize("home", _planned(KNOWN_IDS | {f"{TWIN_SENDS}other"}, _TIE))
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


@pytest.mark.parametrize("name", sorted(KNOWN_IDS))
def test_other_ids_move_no_value(name: str) -> None:
    home = XLA_GOLDENS / name
    assert places(_plan(home).dump) == places(hlomem.load(home))


def test_the_text_does_not_imply_the_order_of_uses() -> None:
    one, other = (XLA_GOLDENS / "jaxlib-0.12.0.1/cpu" / f"twin_users_{n}" for n in ("one", "other"))
    assert (one / "module.hlo").read_text() == (other / "module.hlo").read_text()
    first, second = read_golden(one), read_golden(other)
    assert first["values"] != second["values"]
    assert with_sorted_lists(first["values"]) == with_sorted_lists(second["values"])


def test_the_text_does_not_imply_offsets_either() -> None:
    one, other = (XLA_GOLDENS / f"{TWIN_SENDS}{n}" for n in ("one", "other"))
    assert (one / "module.hlo").read_text() == (other / "module.hlo").read_text()
    assert places(hlomem.load(one)) != places(hlomem.load(other))
