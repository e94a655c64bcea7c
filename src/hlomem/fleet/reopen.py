"""Reopens a program of a store from its source, which must not have changed."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hlomem.api.load import max_input
from hlomem.base.errors import InputError
from hlomem.base.source import visible
from hlomem.fleet.finding import find_units, unit_at
from hlomem.fleet.reading import key_of, list_programs, local_files, open_memory
from hlomem.fleet.storage import is_address
from hlomem.fleet.units import Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.memory import MemoryView


@contextmanager
def opened_memory(row: dict[str, Any], fetch: str = "") -> Iterator[MemoryView]:
    """The memory of a program; elsewhere only below `fetch`, since a store may name any address."""
    source = str(row["source"])
    if is_address(source) and not (fetch and f"{source}/".startswith(f"{fetch.rstrip('/')}/")):
        start = "/".join(visible(source).split("/")[:3])
        raise InputError(f"{visible(source)}: not connected to; --fetch {start} allows it")
    with ExitStack() as stack:
        unit = _find(source)
        files = local_files(unit, stack)
        number = int(str(row["id"]).rpartition("-")[2])
        units = (unit, replace(unit, program=number))  # it may have been read on its own
        if row["key"] not in [key_of(candidate, files, str(row["recipe"])) for candidate in units]:
            raise InputError(f"{visible(unit.source)}: has changed since it was scanned")
        programs = list_programs(unit, files)
        chip = str(row["recipe"]).rpartition("/")[2]
        yield open_memory(programs[number].open(), programs[number].name, chip)


def _find(source: str) -> Unit:
    archive, mark, _ = source.partition("!/")
    if not mark:
        return unit_at(source)
    for found in find_units(archive, lambda _: False, max_input()):
        if isinstance(found, Unit) and found.source == source:
            return found
    raise InputError(f"{visible(source)}: no longer exists")
