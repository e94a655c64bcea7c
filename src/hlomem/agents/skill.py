"""The skill: pages in Markdown that tell an agent which command answers which question."""

from __future__ import annotations

from pathlib import Path

from hlomem.base.atomic_files import write_files
from hlomem.base.errors import CommandError

NAME = "hlomem"
_PACKAGE = Path(__file__).parents[1]


def find_skill() -> Path:
    """The folder of the skill: in the wheel next to the modules, in a clone under skills/."""
    for folder in (_PACKAGE / "skill", _PACKAGE.parents[1] / "skills" / NAME):
        if (folder / "SKILL.md").is_file():
            return folder
    raise CommandError("this installation of hlomem has no skill: install its wheel again")


def copy_skill(parent: Path, *, force: bool = False) -> Path:
    """Copy the skill into a folder of skills; returns where it is now."""
    source = find_skill()
    pages = {path.relative_to(source): [path.read_bytes()] for path in sorted(source.rglob("*.md"))}
    target = parent / NAME
    for folder in {path.parent for path in pages}:
        here = {path.name: pieces for path, pieces in pages.items() if path.parent == folder}
        (target / folder).mkdir(parents=True, exist_ok=True)
        write_files(target / folder, here, force=force)
    return target
