"""The garbage collector, out of the way of code that makes many objects and drops few."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def collector_off() -> Iterator[None]:
    """No garbage collection meanwhile, nor of what was made meanwhile right after."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            _switch_on()


def _switch_on() -> None:
    if gc.get_freeze_count() == 0:
        # Makes what is there old, or the first young collection would walk through all of it.
        gc.freeze()
        gc.unfreeze()
    gc.enable()
