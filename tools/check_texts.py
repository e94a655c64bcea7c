"""Read the HLO texts of XLA's own tests as XLA reads them, and print them as XLA prints them.

    python -m tools.check_texts path/to/xla [--show N]

The path is a git repository of openxla/xla, with or without a work tree; the texts are those of its
tests, taken from the committed files and kept nowhere. Needs jaxlib next to hlomem, whose parser
says which texts XLA reads and what it prints for them. Prints how many hlomem reads, prints the
same and refuses, and the first N of each that differ. Exit code 1 unless hlomem reads all that XLA
reads and prints 99.5 % of it as XLA does. docs/hlo-text.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import HlomemError
from hlomem.hlo import canonicalize, format_module, parse
from tools.xla_texts import find_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

WANTED = 0.995


class Answer(NamedTuple):
    """XLA's opinion of a text."""

    is_read: bool
    text: str
    """The printed module, or the reason of the refusal."""


def answer() -> None:
    """Ask jaxlib's parser about each line of standard input, a JSON string."""
    from jaxlib import _hlo  # noqa: PLC0415 - the process that asks needs none

    for line in sys.stdin:
        try:
            said = True, str(_hlo.hlo_module_from_text(json.loads(line)).to_string())
        except Exception as error:  # noqa: BLE001 - its class depends on the version of jaxlib
            said = False, str(error)
        print(json.dumps(said), flush=True)


def ask(texts: dict[str, str]) -> dict[str, Answer]:
    """XLA's answers; a text that ends its process is refused."""
    answers: dict[str, Answer] = {}
    keys = list(texts)
    while len(answers) < len(keys):
        command = [sys.executable, "-m", "tools.check_texts", "--answer"]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for key in keys[len(answers) :]:
                process.stdin.write(json.dumps(texts[key]) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
                answers[key] = Answer(*json.loads(line)) if line else Answer(False, "aborted")
                if not line:
                    break
    return answers


def verdict(text: str, said: Answer) -> str:
    """What hlomem makes of a text, compared with XLA's answer."""
    try:
        parse(text, lazy=said.is_read).open_all()  # validation refuses more than XLA's parser
        printed = canonicalize(text)
        if not said.is_read:
            return "read, refused by XLA"
        if printed != said.text:
            return "read, printed otherwise"
        module = parse(said.text, lazy=False)
        return "same" if format_module(module) == said.text else "XLA's text printed otherwise"
    except HlomemError:
        return "refused, read by XLA" if said.is_read else "refused as by XLA"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare all texts; 1 where too few are read or printed as XLA does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", nargs="?", help="a git repository of openxla/xla")
    parser.add_argument("--show", type=int, default=5, metavar="N")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.answer:
        answer()
        return 0
    texts = find_texts(options.repository)
    answers = ask(texts)
    verdicts = {key: verdict(text, answers[key]) for key, text in texts.items()}
    counts = Counter(verdicts.values())
    for words, count in counts.most_common():
        keys = [key for key, each in verdicts.items() if each == words]
        shown = "" if words in ("same", "refused as by XLA") else " ".join(keys[: options.show])
        print(f"{count:6,}  {words}  {shown}".rstrip())
    read = sum(each.is_read for each in answers.values())
    print(f"{read:6,}  read by XLA, {counts['same'] / max(read, 1):.2%} printed the same")
    return 0 if not counts["refused, read by XLA"] and counts["same"] >= WANTED * read else 1


if __name__ == "__main__":
    sys.exit(main())
