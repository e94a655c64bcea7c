"""`hlomem.explain`, as a script or a notebook uses it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import hlomem
from hlomem.base.errors import CommandError
from tests.places import GOLDENS, ROOT

SEED = ROOT / "tests" / "goldens" / "seeds" / "003_e0d5fae9bf2de249.txt"
OOM = ROOT / "examples" / "oom" / "before"
MODULE = ROOT / "tests" / "goldens" / "xla" / "jaxlib-0.12.0.1" / "cpu" / "nested_while"


def test_the_numbers_are_at_hand() -> None:
    memory = hlomem.explain(SEED)
    assert memory.peak.size == max(memory.memory.timeline(0).sizes)  # type: ignore[union-attr]
    assert sum(row.size for row in memory.by("role")) == memory.peak.size
    assert sum(share.size for share in memory.roles) == memory.space.size
    assert memory.at(14).step == memory.at("reshape.6").step == 14
    assert [row.size for row in memory.by("buffer", at=0)][:3] == [335790080, 335544320, 81920]
    assert memory.padding.rows[0].example == memory.copies.rows[0].name == "copy.3"
    assert memory.donation.possible_size == 0
    assert memory.holes.size == 32768
    assert memory.needs == memory.space.size
    assert memory.peak_bytes == memory.peak.size
    assert memory.temporaries == sum(each.size for each in memory.holes.allocations)
    for number in (memory.needs, memory.peak_bytes, memory.temporaries):
        assert type(number) is int
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
    assert memory._repr_html_().startswith("<iframe ")
    assert "&#x27;" in memory["params__layers__.1"]._repr_html_()
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(memory)
    console.print(memory["while.4{3}"])
    shown = console.export_text()
    assert "stacked by a loop" in shown
    assert "carried by while.4" in shown


def test_what_is_not_there_is_an_error_of_python_with_what_there_is() -> None:
    memory = hlomem.explain(SEED)
    with pytest.raises(KeyError, match="did you mean"):
        memory["copy.33"]
    with pytest.raises(ValueError, match="no key 'foo': the choices are 'buffer', 'line'"):
        memory.by("foo")  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="no memory space `hbn` in this dump; there are: hbm"):
        hlomem.explain(SEED, space="hbn")


def test_an_argument_is_found_by_its_path_as_printed() -> None:
    memory = hlomem.explain(GOLDENS / "trials/cpu/gpt")
    found = memory["params['embed']['embedding']"].buffer
    assert found.name == "params__embed____embedding__.1"


def test_what_is_printed_in_a_session_is_short() -> None:
    dump = hlomem.load(OOM)
    memory = hlomem.explain(dump)
    found = hlomem.diff(OOM, OOM)
    for each in (dump, memory, memory["while.4{3}"], found):
        assert len(repr(each)) < 200
    assert len(str(found).splitlines()) < 60
    assert repr(memory) == "<MemoryExplanation 'train_step': 23.90 GiB in hbm>"
    assert memory.timeline is not None
    assert max(memory.timeline.sizes) == memory.peak.size
