"""Rows of a report as dictionaries or as a pandas table."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from hlomem.base.errors import CommandError
from hlomem.dump.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

R = TypeVar("R", bound=Record)


def to_dicts(rows: Iterable[Record]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(row) for row in rows]


def to_pandas(rows: Iterable[Record]) -> Any:
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        problem = "pandas is not installed (pip install pandas)"
        raise CommandError(f"{problem}; to_dicts() gives the same rows without it") from error
    return pandas.DataFrame(to_dicts(rows))


class Table(tuple[R, ...]):
    """A tuple of rows with conversions."""

    __slots__ = ()

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary per row."""
        return to_dicts(self)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` of the rows."""
        return to_pandas(self)
