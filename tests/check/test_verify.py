"""The whole verdict: no alarm on any plan XLA wrote, and what is not checked is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import hlomem
from hlomem import hlo
from hlomem.check.verify import MAX_FINDINGS, verify
from hlomem.machines.cpu import CPU
from hlomem.machines.registry import find_machine
from tests import plain
from tests.check.faults import rebuilt
from tests.check.small import LOOP, V, small_dump
from tests.conftest import GOLDENS

GOLDEN_DUMPS = [
    *sorted((GOLDENS / "seeds").glob("*.txt")),
    *sorted((GOLDENS / "xla").glob("*/*/*")),
    *sorted((GOLDENS / "accepted").glob("*/*/*")),
]


@pytest.mark.parametrize("path", GOLDEN_DUMPS, ids=lambda path: "/".join(path.parts[-3:]))
def test_no_alarm_on_what_xla_wrote(path: Path) -> None:
    dump = hlomem.load(path)
    assert verify(replace(dump, open_module=None)).findings == ()
    assert dump.module is None or verify(dump).findings == ()


def test_no_alarm_on_the_corpus(shared: Path) -> None:
    entries = sorted(shared.glob("corpus/*/*/module.hlo"))[::12]
    for text in entries:
        verdict = verify(hlomem.load(text.parent), module=hlo.parse(text.read_text()))
        assert verdict.findings == (), text


def test_a_loop_without_its_parameters_is_not_checked() -> None:
    dump = small_dump([LOOP[0], V("w", (1, 2), text=LOOP[-1].text, is_phi=True, allocation=1)])
    reasons = [each.reason for each in verify(dump, machine=CPU).not_checked]
    assert "the dump does not show the parts of w" in reasons


def test_a_conditional_without_its_parameters_is_not_checked() -> None:
    text = "f32[16]{0} conditional(%s, %o, %u), branch_computations={%f, %g}"
    dump = small_dump([V("k", (0, 1), text=text, is_phi=True)])
    reasons = [each.reason for each in verify(dump, machine=CPU).not_checked]
    assert "the dump does not show the parts of k" in reasons


def test_what_is_missing_is_said() -> None:
    dump = small_dump([V("a", (0, 1))])
    bare = rebuilt(dump, values=None, live_ranges=None)
    said = " ".join(each.reason for each in verify(bare).not_checked)
    assert "no values" in said
    assert "no live ranges" in said
    assert "no usage report" in said
    assert "there is no module" in said
    empty = verify(rebuilt(dump, assignment=None, values=None))
    assert empty.not_checked[0].reason == "the dump has no allocations"


def test_a_backend_that_explains_no_size_is_not_believed() -> None:
    odd = small_dump([V(f"v{n}", (n, n + 1), 128 * n, size=68) for n in range(5)])
    verdict = verify(odd)
    assert verdict.is_clean
    assert "geometry/size-not-of-shape" in {each.rules for each in verdict.not_checked}
    assert verdict.assumed == ("a plan for cpu, because its layouts are not tiled",)


def test_an_unknown_alignment_is_said() -> None:
    value = V("a", (0, 1), shape="f32[8,128]{1,0:T(8,128)S(7)}", size=4096, color=7)
    dump = small_dump([value], {0: plain.Allocation(index=0, size=4096, color=7)})
    verdict = verify(dump, machine=find_machine("tpu", "v5e"))
    assert verdict.is_clean
    assert "the alignment of color 7 of tpu-v5e is not known" in [
        each.reason for each in verdict.not_checked
    ]


def test_a_plan_that_is_all_wrong_is_not_listed_pair_by_pair() -> None:
    values = [V(f"v{number}", (number, 100)) for number in range(60)]
    verdict = verify(small_dump(values, sequence=[f"v{n}" for n in range(100)]), machine=CPU)
    found = [each for each in verdict.findings if each.rule == "interference/overlap"]
    assert len(found) == MAX_FINDINGS
    assert f"stopped after {MAX_FINDINGS} findings" in [each.reason for each in verdict.not_checked]
