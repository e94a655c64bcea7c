"""The README's figures are those of the pages that are measured."""

from __future__ import annotations

import re
from collections import Counter

from tests.places import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| (?:real-)?(cpu|gpu|tpu)\S* \| (\d+) of (\d+) \|", re.MULTILINE)


def test_parity_is_what_the_corpus_showed() -> None:
    parity = (ROOT / "docs/parity.md").read_text(encoding="utf-8")
    planning = parity.partition("## Planning\n")[2].partition("### ")[0]
    equal, every = Counter[str](), Counter[str]()
    for platform, exact, count in _ROW.findall(planning):
        equal[platform] += int(exact)
        every[platform] += int(count)
    assert every.total() > 600
    for platform, count in every.items():
        assert f"{equal[platform]} of {count} {platform.upper()}" in README


def test_no_plan_of_xla_is_found_wrong() -> None:
    parity = (ROOT / "docs/parity.md").read_text(encoding="utf-8")
    found = re.search(r"finds ([\d,]+) of ([\d,]+) plans of XLA right", parity)
    assert found is not None
    assert found[1] == found[2]
    assert f"no false alarm on {found[1]} real plans" in README


def test_it_is_one_screen_to_the_result() -> None:
    before, _, _ = README.partition("## Five questions")
    assert before.index("pip install") < before.index("hlomem compile") < before.index("fits 15.75")
    assert len(before.splitlines()) < 75
