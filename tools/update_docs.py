"""Runs the commands shown in the documents and pastes what they print.

    python -m tools.update_docs [DOCUMENT ...]

A `console` block shows commands after `$ `, each followed by its output; a `pycon` block shows
Python after `>>> `; other blocks are made by functions of `tools/shown.py`. The tests call
`rendered` and compare, so a document cannot show what hlomem does not print. What a command writes
goes below `scratch/`, an empty folder of each document. Blocks that need what is not installed stay
as they are (`tools/documents.py` explains the markers).
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tools import shown
from tools.documents import DOCUMENTS, FENCED, ROOT, Block, block_of

_SCRATCH = "scratch/"
_COMMAND = re.compile(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
_STATEMENT = re.compile(r"^>>> (.*)$", re.MULTILINE)


def output_of(command: str, scratch: Path) -> str:
    """What an `hlomem` command line prints, run in the project's folder."""
    program, *arguments = shlex.split(command.replace("\\\n", " "))
    if program != "hlomem":
        raise ValueError(f"documents show hlomem, not `{command}`")
    placed = [re.sub(rf"^{_SCRATCH}", f"{scratch}/", argument) for argument in arguments]
    line = [sys.executable, "-m", "hlomem", *placed]
    piped = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    piped |= {"XDG_CACHE_HOME": str(scratch / "cache"), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(line, capture_output=True, cwd=ROOT, env=piped, check=False, timeout=600)
    printed = (done.stdout + done.stderr).decode()
    return printed.replace(f"{scratch}/", _SCRATCH).replace(str(ROOT), shown.FOLDER)


def settled(text: str) -> str:
    """Output without what differs from run to run: seconds, and versions to install."""
    return re.sub(r"(?<===)[\d.]+\d|\d+\.\d+(?= s of CPU time)", "N", text)


def rendered(text: str, need: str = "") -> str:
    """A document with the output of every command of a need brought up to date."""
    with TemporaryDirectory() as folder:

        def render(match: re.Match[str]) -> str:
            block = block_of(match)
            if block.need != need or not block.is_possible:
                return match[0]
            now = _now(block, Path(folder))
            if settled(now) == settled(block.text):
                return match[0]
            begin, end = (position - match.start() for position in match.span("text"))
            return match[0][:begin] + now + match[0][end:]

        return FENCED.sub(render, text)


def _now(block: Block, scratch: Path) -> str:
    """The text a block should have."""
    if block.marker.startswith("made by "):
        return shown.MAKERS[block.marker.removeprefix("made by ")]()
    if block.marker:
        return block.text
    if block.language == "console":
        commands = _COMMAND.findall(block.text)
        return "\n".join(f"$ {command}\n{output_of(command, scratch)}" for command in commands)
    if block.language == "pycon":
        return _session(_STATEMENT.findall(block.text))
    return block.text


def _session(statements: list[str]) -> str:
    """Statements, each followed by what it prints."""
    names: dict[str, Any] = {}
    lines = []
    for statement in statements:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(statement, "<document>", "single"), names)  # noqa: S102 - our documents
        lines.append(f">>> {statement}\n{output.getvalue()}")
    return "".join(lines)


def main() -> None:
    """Rewrites the documents."""
    chosen = [Path(name).resolve() for name in sys.argv[1:]] or DOCUMENTS
    for path in chosen:
        text = path.read_text(encoding="utf-8")
        for need in ("", "jax", "libtpu"):
            text = rendered(text, need)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
