"""The modules in the tests of a copy of openxla/xla, from its committed files; kept nowhere."""

from __future__ import annotations

import hashlib
import re
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TEST_FILES = ("_test.cc", "_test_base.cc", ".hlo")
_RAW_STRING = re.compile(r'R"([A-Za-z_]*)\((.*?)\)\1"', re.DOTALL)


def find_texts(repository: Path) -> dict[str, str]:
    """The texts of whole modules at HEAD, by the beginning of their SHA-1; no templates.

    The repository may have a work tree, be its `.git`, or be bare.
    """
    texts = {}
    for name, content in _files_in(repository):
        is_module = name.endswith(".hlo")
        for text in [content] if is_module else [m[2] for m in _RAW_STRING.finditer(content)]:
            start = text.find("HloModule")
            if start >= 0 and "ENTRY" in text and "$" not in text and text.count("HloModule") == 1:
                module = text[start:]
                texts[hashlib.sha1(module.encode(), usedforsecurity=False).hexdigest()[:12]] = (
                    module
                )
    return texts


def _key(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]


def _files_in(repository: Path) -> Iterator[tuple[str, str]]:
    """The files of tests, with their contents."""
    git = ("git", "-C", str(repository))
    listing = subprocess.run(
        [*git, "ls-tree", "-r", "--name-only", "HEAD"], check=True, capture_output=True, text=True
    )
    with subprocess.Popen(
        [*git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        for name in listing.stdout.splitlines():
            if name.endswith(_TEST_FILES):
                reader.stdin.write(f"HEAD:{name}\n".encode())
                reader.stdin.flush()
                *_, size = reader.stdout.readline().split()
                if size != b"missing":  # left out of a partial clone
                    yield name, reader.stdout.read(int(size) + 1)[:-1].decode("utf-8", "replace")
        reader.stdin.close()
