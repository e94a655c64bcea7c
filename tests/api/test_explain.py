"""`hlomem.explain`, as a script or a notebook uses it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import hlomem
from hlomem.base.errors import CommandError
from tests.places import ROOT

SEED = ROOT / "tests" / "goldens" / "seeds" / "003_e0d5fae9bf2de249.txt"
OOM = ROOT / "examples" / "oom" / "before"
MODULE = ROOT / "tests" / "goldens" / "xla" / "jaxlib-0.12.0.1" / "cpu" / "nested_while"


def test_the_numbers_are_at_hand() -> None:
    memory = hlomem.explain(SEED)
    assert memory.peak.size == max(memory.memory.timeline(0).sizes)  # type: ignore[union-attr]
    assert sum(row.size for row in memory.by("role")) == memory.peak.size
    assert sum(share.size for share in memory.roles) == memory.space.size
    assert memory.at(14).step == memory.at("reshape.6").step == 14
    assert [row.size for row in memory.by("buffer", at=0)] == [335544320, 81920]
    assert memory.padding.rows[0].example == memory.copies.rows[0].name == "copy.3"
    assert memory.donation.possible_size == 0
    assert memory.holes.size == 32768
    assert {buffer.color for buffer in memory} == {0}


def test_a_buffer_tells_its_story() -> None:
    copy = hlomem.explain(SEED)["copy.3"]
    assert copy.buffer.padding == 4587520
    assert copy.explain().last == "reshape.6 reads it"
    assert "513 → 520" in str(copy)
    with pytest.raises(CommandError, match="did you mean"):
        hlomem.explain(SEED)["copy.33"]


def test_dumps_texts_plans_and_spaces() -> None:
    dump = hlomem.load(SEED)
    assert hlomem.explain(dump).peak.size == hlomem.explain(SEED.read_text()).peak.size
    assert hlomem.explain(dump, space="vmem").space.color == 1
    text = (MODULE / "module.hlo").read_text()
    plan = hlomem.explain(hlomem.plan(text))
    assert plan.peak.size == hlomem.explain(MODULE).peak.size
    assert plan.by("line") == hlomem.explain(MODULE).by("line")
    assert hlomem.explain(MODULE / "values.txt", program=text).by("line") == plan.by("line")
    assert hlomem.explain(text).by("line") == plan.by("line")
    assert hlomem.explain(MODULE / "module.hlo").by("line") == plan.by("line")


def test_it_shows_itself() -> None:
    memory = hlomem.explain(OOM)
    assert "stacked by a loop" in str(memory)
    assert memory._repr_html_().startswith("<pre>train_step\n")
    assert "&#x27;" in memory["params__layers__.1"]._repr_html_()
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(memory)
    console.print(memory["while.4{3}"])
    shown = console.export_text()
    assert "stacked by a loop" in shown
    assert "carried by while.4" in shown
