"""Findings about a plan or a program, made once.

Strategies ask the same of the same plan for every price: what is found is kept as long as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Found = TypeVar("Found")
_KEPT = "found_once"


def once(owner: Any, key: Hashable, find: Callable[[], Found]) -> Found:
    """The finding of `find` about its owner, which never changes; from memory the second time."""
    kept: dict[Hashable, Any] = owner.__dict__.setdefault(_KEPT, {})
    if key not in kept:
        kept[key] = find()
    found: Found = kept[key]
    return found
