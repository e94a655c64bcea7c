"""Runs the commands shown in the documents and pastes what they print.

    python -m tools.update_docs

A `console` block shows commands after `$ `, each followed by its output. The tests call `rendered`
and compare, so a document cannot show what hlomem does not print. What a command writes goes below
`scratch/`, an empty folder of each document.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_SCRATCH = "scratch/"
_BLOCK = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)


def output_of(command: str, scratch: Path) -> str:
    """What an `hlomem` command line prints, run in the project's folder."""
    program, *arguments = shlex.split(command)
    if program != "hlomem":
        raise ValueError(f"documents show hlomem, not `{command}`")
    placed = [re.sub(rf"^{_SCRATCH}", f"{scratch}/", argument) for argument in arguments]
    line = [sys.executable, "-m", "hlomem", *placed]
    piped = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(line, capture_output=True, cwd=ROOT, env=piped, check=False, timeout=60)
    return (done.stdout + done.stderr).decode().replace(f"{scratch}/", _SCRATCH)


def rendered(text: str) -> str:
    """A document with the output of every command it shows brought up to date."""

    with TemporaryDirectory() as folder:

        def render_block(block: re.Match[str]) -> str:
            commands = re.findall(r"^\$ (.*)$", block.group(), re.MULTILINE)
            outputs = [f"$ {command}\n{output_of(command, Path(folder))}" for command in commands]
            return "\n".join(outputs)

        return _BLOCK.sub(render_block, text)


def main() -> None:
    """Rewrites the documents."""
    for path in DOCUMENTS:
        path.write_text(rendered(path.read_text()))


if __name__ == "__main__":
    main()
