"""The names in the stack-trace breakdown of a dump's peak.

In: the name a program gave to an instruction. Out: the names it makes on a path. Mirrors
`hlo/utils/hlo_stack_trace.cc`.
"""

from __future__ import annotations

import re

_VARIABLE = re.compile(r"[a-zA-Z_]\w*", re.ASCII)
_KEY_OR_ATTRIBUTE = re.compile(r"\['([^']+)'\]|\.(\w+)", re.ASCII)


def split_name(name: str) -> list[str]:
    """`params['layer/fc'].attr` in its parts; a name without quoted keys is one part."""
    variable = _VARIABLE.match(name)
    if variable is None:
        return [name]
    parts = [variable[0]]
    has_keys = False
    position = variable.end()
    while (match := _KEY_OR_ATTRIBUTE.match(name, position)) is not None:
        key, attribute = match.groups()
        parts += key.split("/") if key is not None else [attribute]
        has_keys = has_keys or key is not None
        position = match.end()
    return parts if has_keys and position == len(name) else [name]
