"""How often the functions of a user's code are called while a program is traced.

A function that is called once holds all layers; one that is called again and again is a layer.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hlomem.report.data.lines import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

SEPARATOR = "::"


@contextmanager
def counted_calls(counts: dict[str, int]) -> Iterator[None]:
    """Counts calls of functions outside installed packages, by `file::qualified name`."""
    calls: Counter[CodeType] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls[frame.f_code] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)
        for code, count in calls.items():
            if not is_installed(code.co_filename):
                name = f"{code.co_filename}{SEPARATOR}{code.co_qualname}"
                counts[name] = counts.get(name, 0) + count
