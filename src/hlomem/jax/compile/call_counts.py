"""How the functions of a user's code are called while a program is traced.

A function that is called once holds all layers; one that is called again and again is a layer.
Arguments that are no arrays, such as a number of heads, have to stay what they are where it is
recomputed.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlomem.report.data.lines import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

SEPARATOR = "::"


@contextmanager
def counted_calls(counts: dict[str, int], values: dict[str, list[str]]) -> Iterator[None]:
    """Counts calls of functions outside installed packages, by `file::qualified name`.

    `values` gets the names of those of their arguments that were Python's values.
    """
    calls: Counter[CodeType] = Counter()
    plain: dict[CodeType, dict[str, None]] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls[frame.f_code] += 1
            if _is_users(frame.f_code):
                plain.setdefault(frame.f_code, {}).update(dict.fromkeys(_plain_arguments(frame)))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)
        for code, count in calls.items():
            if _is_users(code):
                name = f"{code.co_filename}{SEPARATOR}{code.co_qualname}"
                counts[name] = counts.get(name, 0) + count
                values[name] = list(dict.fromkeys([*values.get(name, ()), *plain[code]]))


@lru_cache(maxsize=1 << 16)
def _is_users(code: CodeType) -> bool:
    return not is_installed(code.co_filename) and not code.co_filename.startswith("<")


def _plain_arguments(frame: FrameType) -> Iterator[str]:
    """The arguments of a call that JAX could not trace, or not as what they are."""
    code = frame.f_code
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        if name in frame.f_locals and _is_plain(frame.f_locals[name]):
            yield name


def _is_plain(value: Any) -> bool:
    """Whether it is no array and no tree; nothing of the user's is called to find out."""
    if type(value) is tuple:
        return bool(value) and all(map(_is_plain, value))
    is_array = hasattr(type(value), "shape") and hasattr(type(value), "dtype")
    has_hash = type(value).__hash__ is not None
    return has_hash and not is_array and bool(import_module("jax").tree_util.all_leaves([value]))
