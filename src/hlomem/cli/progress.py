"""A progress line on standard error, if that is a terminal; removed when the work is done."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hlomem.base.source import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_REDRAWN = 0.2
_PATIENCE = 1.0


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line that shows the words it is called with."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from hlomem.report.screens.text import shorten, width  # noqa: PLC0415 - only for terminals

    began = drawn = time.monotonic()
    columns = width() - 1

    def draw(words: str) -> None:
        nonlocal drawn
        now = time.monotonic()
        if now - drawn < _REDRAWN:
            return
        drawn = now
        line = shorten(f"{visible(words)}, {now - began:.0f} s", columns)
        sys.stderr.write(f"\r{line:<{columns}}")
        sys.stderr.flush()

    try:
        yield draw
    finally:
        if drawn != began:
            sys.stderr.write(f"\r{'':<{columns}}\r")
            sys.stderr.flush()


@contextmanager
def working(words: str) -> Iterator[None]:
    """A line with constant words and the elapsed time."""
    if not sys.stderr.isatty():
        yield
        return
    from threading import Event, Thread  # noqa: PLC0415 - only for terminals

    done = Event()

    def watch(draw: Callable[[str], None]) -> None:
        wait = _PATIENCE
        while not done.wait(wait):
            draw(words)
            wait = _REDRAWN

    with progress() as draw:
        watcher = Thread(target=watch, args=(draw,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
