"""Strings as XLA prints them: escaped (`absl::CEscape`), or as JSON (`LexesAsJsonDict`)."""

from __future__ import annotations

import re
from functools import lru_cache

_PLAIN = re.compile(r"""[ !#-&(-\[\]-~]*+""")
"""Printable, and none of the quotes and the backslash."""
_MAX_REMEMBERED = 1024


def quote(text: str) -> str:
    """A string as XLA prints it (`absl::CEscape`)."""
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    return f'"{escape(text)}"'


def escape(text: str) -> str:
    """The characters between the quotes."""
    return "".join(map(_escape_byte, text.encode("utf-8", "surrogateescape")))


_ESCAPES = {
    ord("\n"): r"\n",
    ord("\r"): r"\r",
    ord("\t"): r"\t",
    ord('"'): r"\"",
    ord("'"): r"\'",
    ord("\\"): r"\\",
}


def _escape_byte(byte: int) -> str:
    known = _ESCAPES.get(byte)
    if known is not None:
        return known
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def json_or_string(text: str) -> str:
    """JSON stands as it is, anything else in quotes (`LexesAsJsonDict`)."""
    return text if _is_json_dict(text) else quote(text)


@lru_cache(maxsize=_MAX_REMEMBERED)
def _is_json_dict(text: str) -> bool:
    """Braces that close each other and at the very end, strings closed."""
    if not (text.startswith("{") and text.endswith("}")):
        return False
    depth, in_string, is_escaped = 0, False, False
    for position, mark in enumerate(text):
        if is_escaped or mark == "\\":
            is_escaped = not is_escaped and in_string
        elif mark == '"':
            in_string = not in_string
        elif not in_string and mark in "{}":
            depth += 1 if mark == "{" else -1
            if depth == 0:
                return position == len(text) - 1
    return False
