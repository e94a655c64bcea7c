"""Builds the site of the documents, strictly: a link that leads nowhere is an error.

    python -m tools.build_site [FOLDER]

In: the documents, the README among them, `mkdocs.yml`, and the docstrings of what `hlomem` exports.
Out: a folder of pages, `site` by default. Each command's section gets its `--help`. Files of the
repository that documents link to (examples) are copied; a link to a folder becomes its name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"\[([^\]\n]*(?:\n[^\]\n]*)?)\]\((?!https?:|#|mailto:)([^)\s]+)\)")
_FILES = "files"
_COMMAND = re.compile(r"^## (.+)$", re.MULTILINE)
_DOCUMENTS = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
"""What lies outside of `docs`, and its name on the site."""


def main() -> int:
    """Copies the documents with links as the site needs them, and builds."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "site").resolve()
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "docs"
        shutil.copytree(ROOT / "docs", pages)
        for name, page in _DOCUMENTS.items():
            (pages / page).write_text(_moved((ROOT / name).read_text(), ROOT / name, pages))
        for path in (ROOT / "docs").rglob("*.md"):
            copy = pages / path.relative_to(ROOT / "docs")
            copy.write_text(_moved(path.read_text(), path, pages))
        commands = pages / "cli.md"
        commands.write_text(with_help(commands.read_text()))
        (pages / "llms.txt").write_text(index_for_models(pages, (ROOT / "mkdocs.yml").read_text()))
        shutil.copy(ROOT / "mkdocs.yml", folder)
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
        command += ["--config-file", f"{folder}/mkdocs.yml", "--site-dir", str(target)]
        quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        code = subprocess.run(command, check=False, env=quiet).returncode
    if not code:
        print(f"the site: {target / 'index.html'}")
    return code


def index_for_models(pages: Path, config: str) -> str:
    """llms.txt: the pages of the navigation, each with its first sentence."""
    about = config.partition("site_description: ")[2].partition("\n")[0]
    lines = ["# hlomem", "", f"> {about}"]
    for line in config.partition("\nnav:\n")[2].splitlines():
        title, _, page = line.strip().removeprefix("- ").partition(": ")
        if not page:
            lines += ["", f"## {title.removesuffix(':')}", ""]
        elif page != "index.md":
            said = _first_sentence(pages / page)
            lines.append(f"- [{title}]({page.removesuffix('.md')}/){said and f': {said}'}")
    return "\n".join([*lines, ""])


def _first_sentence(page: Path) -> str:
    paragraphs = page.read_text().split("\n\n")
    first = next((text for text in paragraphs if text[:1].isalpha() or text[:2] == "**"), "")
    return re.split(r"(?<=[.:])\s", " ".join(first.split()))[0]


def with_help(text: str) -> str:
    """The page of commands with each command's help below its heading."""
    return _COMMAND.sub(lambda heading: f"{heading[0]}\n\n```text\n{_help(heading[1])}```", text)


def _help(command: str) -> str:
    line = [sys.executable, "-m", "hlomem", command, "--help"]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(line, check=True, capture_output=True, text=True, env=environment).stdout


def _moved(text: str, document: Path, pages: Path) -> str:
    """A document with its links as they are on the site."""
    return _LINK.sub(lambda link: _target(link[1], link[2], document, pages), text)


def _target(words: str, link: str, document: Path, pages: Path) -> str:
    path, _, part = link.partition("#")
    wanted = (document.parent / path).resolve()
    if not wanted.exists():
        raise SystemExit(f"{document.relative_to(ROOT)}: no such file: {link}")
    inside = wanted.relative_to(ROOT).as_posix()
    suffix = f"#{part}" if part else ""
    if inside in _DOCUMENTS:
        return f"[{words}]({_DOCUMENTS[inside]}{suffix})"
    if inside.startswith("docs/"):
        return f"[{words}]({inside.removeprefix('docs/')}{suffix})"
    if wanted.is_dir():
        return words
    copy = pages / _FILES / inside
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(wanted, copy)
    return f"[{words}]({_FILES}/{inside})"


if __name__ == "__main__":
    sys.exit(main())
