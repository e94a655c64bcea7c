"""Growth limits as users write them: `+2%` of a size, or `+1GiB`."""

from __future__ import annotations

import re

from hlomem.base.errors import CommandError
from hlomem.base.sizes import parse_size
from hlomem.base.source import visible

_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)%")


def parse_limit(text: str, size: int) -> int:
    """The bytes by which `size` may grow."""
    bare = text.strip().removeprefix("+")
    if (share := _PERCENT.fullmatch(bare)) is not None:
        return int(size * float(share[1]) / 100)
    limit = parse_size(bare)
    if limit is None:
        raise CommandError(f"not a limit: `{visible(text)}`; give `+2%` or `+1GiB`")
    return limit
