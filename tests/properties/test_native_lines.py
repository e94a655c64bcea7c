"""The lines of a dump, read natively and by patterns: the same records, or the same complaint."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.base.errors import HlomemError
from hlomem.base.native import kernel
from hlomem.base.source import Source
from hlomem.dump import assignment, live_range, values
from hlomem.dump.parts import parse_part
from tests.places import GOLDENS

READERS = ("read_values", "read_allocations", "read_sequence", "read_ranges")
KERNELS = {name: kernel("hlomem.dump._lines", name) for name in READERS}
pytestmark = pytest.mark.skipif(None in KERNELS.values(), reason="_lines.c was not built")
CHOICES = (
    (values, "_read_natively"),
    (assignment, "_read_natively"),
    (live_range, "_read_sequence"),
    (live_range, "_read_ranges"),
)
TEXTS = [
    path.read_text(encoding="utf-8")
    for folder in ("jaxlib-0.12.0.1", "jaxlib-0.10.0", "jaxlib-0.6.0", "jaxlib-0.4.13")
    for path in sorted((GOLDENS / "xla" / folder).rglob("*.txt"))
    if path.stat().st_size < 20_000
]
NUMBERS = ("0", "-1", "9" * 18, "9" * 19, "{", "{}", "{0,1}", "{00}")
SIGNS = (
    "",
    " ",
    "  ",
    "    ",
    "\n",
    "%",
    "<",
    ">",
    ":",
    ",",
    "|",
    "(",
    ")",
    "\t",
    "\x1c",
    "\x7f",
    "é",
)
WORDS = (" @1", " (phi)", ", constant", ", color 0", ", color 3", ", page 1", "allocation ")
LINES = (
    "  (none)\n",
    " uses:\n",
    '\n"x',
    "\n}",
    " value: ",
    " reused by buffers of a different color:\n",
)
PIECES = st.sampled_from((*NUMBERS, *SIGNS, *WORDS, *LINES))
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), PIECES), max_size=3)


def _edited(text: str, edits: list[tuple[float, int, str]]) -> str:
    for share, length, piece in edits:
        place = int(share * len(text))
        text = text[:place] + piece + text[place + length :]
    return text


def _read(text: str) -> Any:
    try:
        return parse_part(Source("d.txt", text))
    except HlomemError as error:
        return str(error)


def _read_by_patterns(text: str) -> Any:
    with ExitStack() as stack:
        for module, name in CHOICES:
            stack.enter_context(patch.object(module, name, None))
        return _read(text)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(TEXTS), EDITS)
def test_any_text_is_read_as_by_patterns(text: str, edits: list[tuple[float, int, str]]) -> None:
    edited = _edited(text, edits)
    assert _read(edited) == _read_by_patterns(edited)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TEXTS), st.floats(0, 1))
def test_a_text_that_breaks_off_is_refused_as_by_patterns(text: str, share: float) -> None:
    cut = text[: int(share * len(text))]
    assert _read(cut) == _read_by_patterns(cut)


@pytest.mark.parametrize("arguments", [(), (b"x",), ("é",), (None,)])
@pytest.mark.parametrize("name", ["read_sequence", "read_ranges"])
def test_what_is_no_ascii_text_is_refused(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        KERNELS[name](*arguments)


@pytest.mark.parametrize("part", [(-1, 2), (2, 1), (0, 4), (1 << 70, 1 << 70), ("0", 1)])
def test_a_part_that_a_text_does_not_have_is_refused(part: tuple[Any, Any]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        KERNELS["read_allocations"]("abc", *part)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        KERNELS["read_values"]("abc", *part, True, True, tuple, tuple)
