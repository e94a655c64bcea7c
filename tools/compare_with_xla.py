"""Every form of HLO text against XLA's own parser.

    python tools/compare_with_xla.py [--json FILE]

Needs jaxlib beside hlomem. For each text of `tests/hlo/forms.py`: XLA accepts it, hlomem reads it
(lazily and in full), and the text hlomem prints is for XLA the same module as the original. Prints
what differs; exit code 1 if anything does.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from jaxlib import _hlo

from hlomem.base.errors import ParseError
from hlomem.hlo import format_module, parse

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.hlo.forms import FORMS


def xla_text(text: str) -> str:
    """What XLA prints for a text; raises what XLA raises."""
    return str(_hlo.hlo_module_from_text(text).to_string())


def difference(text: str) -> str:
    """In which way XLA and hlomem disagree about a text; empty where they do not."""
    try:
        expected = xla_text(text)
    except Exception as error:  # noqa: BLE001 - its class depends on the version of jaxlib
        return f"XLA refuses the form: {str(error).splitlines()[-1][:100]}"
    try:
        parse(text)
        printed = format_module(parse(text, lazy=False))
    except ParseError as error:
        return f"hlomem refuses the form: {error}"
    try:
        made = xla_text(printed)
    except Exception as error:  # noqa: BLE001
        return f"XLA refuses what hlomem prints: {error}\n{printed}"
    return "" if made == expected else f"different modules:\n{expected}\n{made}"


def main() -> int:
    """Compare all forms."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    differences = {name: difference(text) for name, text in FORMS.items()}
    found = {name: what for name, what in differences.items() if what}
    for name, what in found.items():
        print(f"--- {name}: {what}")
    print(f"{len(FORMS) - len(found)} of {len(FORMS)} forms are the same to XLA and to hlomem")
    if options.json:
        counts = {"forms": len(FORMS), "equal": len(FORMS) - len(found), "different": sorted(found)}
        options.json.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
