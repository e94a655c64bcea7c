"""Shapes in dumps, which may be malformed."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from hlomem.base.errors import HlomemError
from hlomem.hlo.text.shape_parser import parse_shape_text

if TYPE_CHECKING:
    from hlomem.hlo.shape import Shape


@lru_cache(maxsize=4096)
def parse_shape_or_none(text: str) -> Shape | None:
    try:
        return parse_shape_text(text)
    except HlomemError:
        return None
