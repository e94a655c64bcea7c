"""Pausing the garbage collector where code allocates much and frees little."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def collector_off() -> Iterator[None]:
    """Disable the collector inside the block and exempt its objects from the next collection."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_freeze_count() == 0:
                gc.freeze()  # moves the new objects to the oldest generation
                gc.unfreeze()
            gc.enable()
