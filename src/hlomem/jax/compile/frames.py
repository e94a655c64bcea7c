"""The calls of the user's code that are going on, outside installed packages and hlomem."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hlomem.report.data.lines import is_installed
from hlomem.report.data.sharding.decision import Frame

if TYPE_CHECKING:
    from types import FrameType

_OURS = str(Path(__file__).parents[2])
_MAX_FRAMES = 24


def is_users(file: str) -> bool:
    """Whether a file is the user's own."""
    return not is_installed(file) and not file.startswith((_OURS, "<"))


def users_frames() -> tuple[Frame, ...]:
    """The frames of the user's files, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    found: list[Frame] = []
    while frame is not None and len(found) < _MAX_FRAMES:
        code, caller = frame.f_code, frame.f_back
        if is_users(code.co_filename):
            found.append(
                Frame(
                    line=f"{code.co_filename}:{frame.f_lineno}",
                    function=code.co_qualname,
                    begin=code.co_firstlineno,
                    is_mapped=caller is not None and is_installed(caller.f_code.co_filename),
                )
            )
        frame = caller
    return tuple(found)
