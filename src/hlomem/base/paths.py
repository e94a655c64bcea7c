"""Paths as texts, for what starts often.

To import `pathlib` is a twentieth of what the plan of a small module takes. In: a path. Out: the
text `pathlib` would make of it, which is asked where that is not plainly the path as it is.
"""

from __future__ import annotations

import os


def plain_path(path: str | os.PathLike[str]) -> str:
    """A path without `.` and empty parts: `str(Path(path))`."""
    text = os.fspath(path)
    parts = text.removeprefix("/").split("/")
    if os.sep == "/" and (text == "/" or ("" not in parts and "." not in parts)):
        return text
    from pathlib import Path  # noqa: PLC0415 - as above

    return str(Path(path))


def file_name(path: str | os.PathLike[str]) -> str:
    """The last part of a path: `Path(path).name`."""
    last = plain_path(path).rpartition(os.sep)[2]
    if last != "." and os.sep == "/":
        return last
    from pathlib import Path  # noqa: PLC0415 - as above

    return Path(path).name
