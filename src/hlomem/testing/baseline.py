"""The memory of a project's programs as it should be: a file of JSON under version control.

In: the file. Out: a `Measurement` for every test. What is written is the same for the same numbers:
sorted, a key a line, so that version control shows and merges it as it does code.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from hlomem.base.atomic_files import write_files
from hlomem.base.errors import InputError
from hlomem.base.source import visible
from hlomem.testing.measurement import Measurement  # noqa: TC001 - msgspec reads the type

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "hlomem/baseline/1"


class _File(msgspec.Struct, frozen=True):
    schema: str
    programs: dict[str, Measurement]


def read_baseline(path: Path) -> dict[str, Measurement]:
    """The measurements of a file, by test; none where there is no file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"{visible(str(path))}: {error.strerror or error}") from error
    try:
        file = msgspec.json.decode(data, type=_File)
    except msgspec.MsgspecError as error:
        hint = "a merge may have left its marks; --hlomem-update writes the file anew"
        raise InputError(
            f"{visible(str(path))}: no baseline of hlomem: {error}\n  {hint}"
        ) from error
    if file.schema != SCHEMA:
        problem = f"a baseline of another version, {visible(file.schema)}"
        raise InputError(f"{visible(str(path))}: {problem}; --hlomem-update writes it anew")
    return file.programs


def write_baseline(path: Path, programs: dict[str, Measurement]) -> None:
    """Write the file, whole or not at all."""
    content = {"programs": msgspec.to_builtins(programs), "schema": SCHEMA}
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_files(path.parent, {path.name: [text.encode()]}, force=True)


def merge(
    old: dict[str, Measurement], new: dict[str, Measurement], root: Path
) -> dict[str, Measurement]:
    """The new measurements, and the old ones of tests that did not run but are still there."""
    kept = {key: value for key, value in old.items() if (root / key.partition("::")[0]).exists()}
    return {**kept, **new}
