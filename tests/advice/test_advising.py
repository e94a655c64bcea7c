"""Advice: what is promised is the difference between two plans, and XLA keeps the promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

import hlomem
from hlomem.report.data.advice import AdviceReport
from hlomem.report.screens.advice_text import draw_advice
from tests.conftest import GOLDENS

if TYPE_CHECKING:
    from pathlib import Path

PAIRS = GOLDENS / "pairs"
SEED = GOLDENS / "seeds/003_e0d5fae9bf2de249.txt"


def _reserved(folder: Path) -> int:
    assignment = hlomem.load(folder).assignment
    assert assignment is not None
    return sum(each.size for each in assignment.allocations)


def _module(folder: Path) -> str:
    return (folder / "module.hlo").read_text()


def _rules(advised: AdviceReport) -> dict[str, int]:
    return {each.rule: each.saves for each in reversed(advised.advice)}


def test_donating_saves_what_xla_saves_by_it() -> None:
    pair = PAIRS / "donation_dropped"
    advised = hlomem.advise(_module(pair / "after"))
    assert _rules(advised)["donate"] == _reserved(pair / "after") - _reserved(pair / "before")
    [donation] = [each for each in advised.advice if each.rule == "donate"]
    assert donation.title == "donate 3 arguments: params['b1'], params['w1'], params['w2']"
    assert (donation.method, donation.confidence) == ("re-planned", "high")


def test_what_is_donated_is_not_advised() -> None:
    advised = hlomem.advise(_module(PAIRS / "donation_dropped/before"))
    assert "donate" not in _rules(advised)


def test_a_narrower_type_saves_what_xla_saves_by_it() -> None:
    pair = PAIRS / "dtype_widened"
    advised = hlomem.advise(_module(pair / "after"))
    saved = _reserved(pair / "after") - _reserved(pair / "before")
    assert abs(_rules(advised)["narrow"] - saved) < 100


def test_recomputation_is_counted_and_said_to_be() -> None:
    advised = hlomem.advise(_module(PAIRS / "remat_removed/after"))
    [advice] = [each for each in advised.advice if each.rule == "checkpoint"]
    assert advice.method == "counted"
    pair = PAIRS / "remat_removed"
    assert advice.saves >= _reserved(pair / "after") - _reserved(pair / "before")


def test_a_dump_alone_is_enough() -> None:
    advised = hlomem.advise(hlomem.load(SEED))
    assert "the program was rebuilt from the dump" in advised.notes
    assert advised.advice[0].title == "take the result that copy.4 copies in layout {2,1,0}"
    assert advised.advice[0].saves == 335790080


def test_a_donation_in_a_program_made_of_a_dump_is_less_sure() -> None:
    folder = PAIRS / "donation_dropped/after"
    rebuilt = hlomem.advise(replace(hlomem.load(folder), open_module=None))
    assert _rules(rebuilt)["donate"] == _rules(hlomem.advise(_module(folder)))["donate"]
    [donation] = [each for each in rebuilt.advice if each.rule == "donate"]
    assert donation.confidence == "medium"


def test_a_dump_and_its_module_give_what_the_module_gives() -> None:
    folder = PAIRS / "donation_dropped/after"
    module = hlomem.hlo.parse(_module(folder))
    of_dump = hlomem.advise(hlomem.load(folder), module=module)
    assert of_dump.advice == hlomem.advise(module).advice
    assert of_dump.notes == ()


def test_where_our_plan_is_not_xlas_nothing_is_sure() -> None:
    dump = hlomem.load(PAIRS / "donation_dropped/after")
    assert dump.assignment is not None
    first, *rest = dump.assignment.allocations
    larger = replace(dump.assignment, allocations=(replace(first, size=first.size + 64), *rest))
    part = next(each for each in dump.parts if each.kind == "assignment")
    changed = part._replace(contents=part.contents._replace(assignment=larger))
    parts = tuple(changed if each is part else each for each in dump.parts)
    advised = hlomem.advise(hlomem.Dump(dump.name, parts, dump.eras))
    assert any("savings may differ" in note for note in advised.notes)
    assert {each.confidence for each in advised.advice} == {"low"}


HEAD = "HloModule m, is_scheduled=true\n\n"
READ_LATE = """ENTRY %main (a: f32[1024], b: f32[1024]) -> (f32[1024], f32[]) {
  %a = f32[1024]{0} parameter(0)
  %b = f32[1024]{0} parameter(1)
  %sum = f32[1024]{0} add(%a, %b)
  %twice = f32[1024]{0} multiply(%sum, %a)
  %last = f32[1024]{0} add(%twice, %a)
  %part = f32[1]{0} slice(%last), slice={[0:1]}
  %scalar = f32[] bitcast(%part)
  ROOT %result = (f32[1024]{0}, f32[]) tuple(%sum, %scalar)
}
"""


def test_an_argument_read_after_the_result_is_written_is_not_donated() -> None:
    advised = hlomem.advise(HEAD + READ_LATE, backend="cpu")
    assert [each.rule for each in advised.advice] == ["narrow"]


COPIED = """ENTRY %main (cache: f32[1024], new: f32[8]) -> f32[1024] {
  %cache = f32[1024]{0} parameter(0)
  %new = f32[8]{0} parameter(1)
  %zero = s32[] constant(0)
  %copy = f32[1024]{0} copy(%cache)
  ROOT %update = f32[1024]{0} dynamic-update-slice(%copy, %new, %zero)
}
"""


def test_a_copy_that_only_saves_an_argument_goes_with_the_donation() -> None:
    advised = hlomem.advise(HEAD + COPIED, backend="cpu")
    [advice] = [each for each in advised.advice if each.rule == "donate"]
    assert advice.saves == 4096


LATE_SUMS = """ENTRY %main (a: f32[1024]) -> f32[1024] {
  %a = f32[1024]{0} parameter(0)
  %sin = f32[1024]{0} sine(%a)
  %cos = f32[1024]{0} cosine(%a)
  %tan = f32[1024]{0} tan(%a)
  %s1 = f32[1]{0} slice(%sin), slice={[0:1]}
  %s2 = f32[1]{0} slice(%cos), slice={[0:1]}
  %s3 = f32[1]{0} slice(%tan), slice={[0:1]}
  %s4 = f32[1]{0} add(%s1, %s2)
  %s5 = f32[1]{0} add(%s4, %s3)
  %s6 = f32[] bitcast(%s5)
  ROOT %result = f32[1024]{0} broadcast(%s6), dimensions={}
}
"""


def test_an_order_made_for_memory_keeps_one_at_a_time() -> None:
    advised = hlomem.advise(HEAD + LATE_SUMS, backend="cpu")
    [advice] = [each for each in advised.advice if each.rule == "order"]
    assert advice.saves >= 4096
    assert "--xla_cpu_enable_concurrency_optimized_scheduler=false" in advice.how


@pytest.mark.parametrize("name", sorted(path.name for path in PAIRS.iterdir()))
def test_a_screen_has_80_columns(name: str) -> None:
    lines = draw_advice(hlomem.advise(_module(PAIRS / name / "after")), 80)
    texts = ["".join(piece for piece, _ in line) for line in lines]
    assert max(map(len, texts)) <= 80
    assert len(texts) <= 40
