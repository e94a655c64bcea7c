"""Every rule has a sentence, a page and a place where it is used."""

from __future__ import annotations

import re
from pathlib import Path

from hlomem.check import findings
from hlomem.check.rules import RULES
from tests.conftest import GOLDENS


def test_every_rule_is_said_in_a_sentence_and_documented() -> None:
    sources = Path(findings.__file__).parent.glob("*.py")
    texts = [path.read_text() for path in sources if path.name != "rules.py"]
    families = "|".join(sorted({rule.partition("/")[0] for rule in RULES}))
    used = set(re.findall(rf'"((?:{families})/[a-z-]+)"', "".join(texts)))
    assert used == set(RULES)
    page = (GOLDENS.parent.parent / "docs" / "verifier.md").read_text()
    assert [rule for rule in RULES if f"`{rule}`" not in page] == []
