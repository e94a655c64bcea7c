"""Pages have the advice that was tried, wherever they are written."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

import hlomem
from hlomem.api.advise import advise_on, build_advised_page, case_of
from hlomem.api.explain import MemoryExplanation
from hlomem.api.opening import open_memory
from hlomem.base.errors import CommandError
from hlomem.machines.capacity import parse_capacity
from tests.places import GOLDENS, ROOT

BEFORE = ROOT / "examples" / "oom" / "before"


def test_a_page_has_what_advise_says() -> None:
    memory = hlomem.explain(BEFORE).memory
    page = build_advised_page(memory)
    assert page.advice == advise_on(memory)
    assert page.advice is not None
    assert any("jax.checkpoint(layer)" in piece.how for piece in page.advice.advice)


def _held(text: str) -> dict[str, Any]:
    """The first report in the text of a page."""
    data = re.search(r'id="data">([^<]*)<', text)
    assert data is not None
    held: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(data[1])))["reports"][0]
    return held


def test_pages_of_an_explanation_have_advice_and_its_capacity(tmp_path: Path) -> None:
    given = hlomem.explain(BEFORE)
    explanation = MemoryExplanation(given.memory, given.space, parse_capacity("v5e"))
    explanation.write_page(tmp_path / "page.html")
    for text in ((tmp_path / "page.html").read_text(), html.unescape(explanation._repr_html_())):
        held = _held(text)
        assert held["chip"] == "v5e"
        assert any("jax.checkpoint(layer)" in piece["how"] for piece in held["advice"]["advice"])


def test_a_program_ordered_by_a_dump_is_varied_in_that_order() -> None:
    home = GOLDENS / "xla/jaxlib-0.4.13/cpu/nested_while"
    memory = open_memory(
        home / "module.hlo", backend="cpu", era="jaxlib-0.4.13", schedule=hlomem.load(home)
    )
    case = case_of(memory, era="jaxlib-0.4.13")
    assert not case.is_rebuilt
    assert case.planned_size == case.space.size == hlomem.explain(home).space.size


@pytest.mark.parametrize("given", [{"era": "K"}, {"schedule": hlomem.load(BEFORE)}])
def test_what_only_a_module_can_be_told_is_refused_for_a_dump(given: dict[str, Any]) -> None:
    with pytest.raises(CommandError, match="is for an HLO module; a dump has its own"):
        open_memory(BEFORE, **given)
