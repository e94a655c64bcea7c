"""Adds dump flags to XLA_FLAGS, after those of the user.

XLA reads the variable as flags if it begins with `-`, else as the name of a file with flags; of a
repeated flag the last counts (xla/parse_flags_from_env.cc).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from hlomem.base.errors import CommandError, InputError
from hlomem.base.source import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "XLA_FLAGS"
NO_CACHE = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
"""Programs from JAX's cache are not compiled, hence not dumped."""
_DUMP_TO = re.compile(r"""(?:^|\s)--xla_dump_to(?:=|\s+)("[^"]*"|'[^']*'|[^\s"']\S*)""")
_NO_FOLDERS = frozenset({"-", "sponge"})
"""Special values that are not folders: standard output, and one internal to Google."""


def read_flags(environment: Mapping[str, str]) -> str:
    """The user's flags, read from their file if necessary."""
    value = environment.get(VARIABLE, "").strip()
    if not value or value.startswith("-"):
        return value
    try:
        text = Path(value).read_text("utf-8", "surrogateescape")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        problem = f"{VARIABLE} names a file of flags, {visible(value)}, which cannot be read"
        raise InputError(f"{problem}: {reason}") from error
    return " ".join(text.split())


def users_folder(flags: str) -> Path | None:
    found = _DUMP_TO.findall(flags)
    if not found:
        return None
    value = found[-1].strip("\"'")
    if value in _NO_FOLDERS:
        problem = f"{VARIABLE} dumps to `{visible(value)}`, which cannot be read afterwards"
        raise CommandError(f"{problem}; omit --xla_dump_to, or name a folder")
    return Path(value)


def with_dumps(
    environment: Mapping[str, str], flags: str, folder: Path | None, *, keeps_cache: bool
) -> dict[str, str]:
    """The environment of a command with dumps, to `folder` unless the user has one."""
    added = [] if folder is None else [f"--xla_dump_to={_quote(str(folder))}"]
    added.append("--xla_dump_hlo_as_text")
    changed = {VARIABLE: " ".join([*filter(None, [flags]), *added])}
    return {**environment, **changed, **({} if keeps_cache else NO_CACHE)}


def _quote(path: str) -> str:
    if not re.search(r"[\s\"']", path):
        return path
    quote = "'" if '"' in path else '"'
    if quote in path:
        raise CommandError(f"XLA cannot write to a folder with both quotes: {visible(path)}")
    return f"{quote}{path}{quote}"
