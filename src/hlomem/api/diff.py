"""`hlomem.diff`: what changed in memory between two compiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.api.load import is_given_as_text
from hlomem.api.opening import Subject, open_memory
from hlomem.report.data.diff import GROUPINGS, Diff, Grouping, build_diff
from hlomem.report.data.lookup import check_choice

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloModule


def diff(
    before: Subject,
    after: Subject,
    *,
    module: str | None = None,
    before_module: HloModule | None = None,
    after_module: HloModule | None = None,
    by: Grouping = "line",
    space: str | None = None,
) -> Diff:
    """The changes in memory from one compile of a program to another.

    `module` chooses a program of folders. `before_module` and `after_module` are the programs of
    dumps without HLO text next to them; they provide source lines.
    """
    check_choice("by", by, GROUPINGS)
    memories = (
        open_memory(before, module=module, program=before_module),
        open_memory(after, module=module, program=after_module),
    )
    found = build_diff(*memories, by=by, space=space)
    return replace(
        found,
        before=replace(found.before, name=_name(before, found.before.name)),
        after=replace(found.after, name=_name(after, found.after.name)),
    )


def _name(subject: Subject, title: str) -> str:
    """A side's name: the given path, or the program."""
    is_path = isinstance(subject, Path) or (
        isinstance(subject, str) and not is_given_as_text(subject)
    )
    return str(subject) if is_path else title
