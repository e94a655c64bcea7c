"""Ask XLA about texts as people write them, and keep its answers as goldens.

    python -m tools.record_written

Needs jaxlib next to hlomem. Writes `tests/goldens/written.json`: what XLA prints for each text of
`tests/hlo/written.py` and `tests/hlo/forms.py`, what it says of those it refuses, and the shapes it
infers for `tests/hlo/shape_inference/cases.py`. Each text is asked for in a process of its own:
some end XLA's parser.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from jaxlib import _hlo, version

from tests.hlo.forms import FORMS
from tests.hlo.shape_inference.cases import instructions, module
from tests.hlo.written import REFUSED, WRITTEN

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "goldens" / "written.json"
_ROOT = "  ROOT %r = "


def ask(text: str) -> tuple[bool, str]:
    """Whether XLA reads a text, and what it prints for it or says of it."""
    try:
        return True, str(_hlo.hlo_module_from_text(text).to_string())
    except Exception as error:  # noqa: BLE001 - its class depends on the version of jaxlib
        return False, str(error)


def ask_all(texts: dict[str, str]) -> dict[str, tuple[bool, str]]:
    """The same for many; a text that ends the process is refused without words."""
    answers: dict[str, tuple[bool, str]] = {}
    for name, text in texts.items():
        run = [sys.executable, "-m", "tools.record_written", "--one"]
        done = subprocess.run(run, input=text, capture_output=True, text=True, check=False)
        answers[name] = tuple(json.loads(done.stdout)) if done.stdout else (False, "")
    return answers


def said(answer: str) -> str:
    """Place and words of XLA's first complaint."""
    _, _, rest = answer.partition("was parsing ")
    return (rest or answer).split("\n")[0]


def main() -> int:
    """Record all; 1 where XLA's answer is not of the kind a text is listed for."""
    if sys.argv[1:] == ["--one"]:
        print(json.dumps(ask(sys.stdin.read())))
        return 0
    printed, refused = ask_all({**FORMS, **WRITTEN}), ask_all(REFUSED)
    shapes = ask_all({case: module(case) for case in instructions()})
    for name, (is_read, answer) in printed.items():
        if not is_read:
            print(f"XLA refuses `{name}`: {said(answer)}")
    for name in [name for name, (is_read, _) in refused.items() if is_read]:
        print(f"XLA reads `{name}`")
    inferred = {
        case: text.partition(_ROOT)[2].partition(f" {case.partition('(')[0]}(")[0] or None
        for case, (_, text) in shapes.items()
    }
    golden = {
        "origin": f"jaxlib {version.__version__}, by tools/record_written.py",
        "printed": {name: text for name, (is_read, text) in printed.items() if is_read},
        "refused": {name: said(text) for name, (is_read, text) in refused.items() if not is_read},
        "inferred": inferred,
    }
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
    is_complete = len(golden["printed"]) == len(printed) and len(golden["refused"]) == len(refused)
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
