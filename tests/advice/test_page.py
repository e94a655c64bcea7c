"""Pages have the advice that was tried, wherever they are written."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from pathlib import Path
from typing import Any

import hlomem
from hlomem.advice.advising import advise_on
from hlomem.advice.page import build_advised_page
from hlomem.api.explain import MemoryExplanation
from hlomem.machines.capacity import parse_capacity
from tests.places import ROOT

BEFORE = ROOT / "examples" / "oom" / "before"


def test_a_page_has_what_advise_says() -> None:
    memory = hlomem.explain(BEFORE).memory
    page = build_advised_page(memory)
    assert page.advice == advise_on(memory)
    assert page.advice is not None
    assert "jax.checkpoint(layer)" in page.advice.advice[0].how


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
        assert "jax.checkpoint(layer)" in held["advice"]["advice"][0]["how"]
