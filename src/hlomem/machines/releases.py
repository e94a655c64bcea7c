"""Releases of XLA (`jaxlib-0.7.2`, `libtpu-0.0.51`) and the era of the dump format of each.

Rules that differ between releases are in `machines/options.py` and `machines/tpu.py`, formats in
`dump/eras.py`.
"""

from __future__ import annotations

import re

from msgspec import Struct

from hlomem.base.errors import CommandError
from hlomem.base.source import visible

JAXLIB = "jaxlib"
LIBTPU = "libtpu"


class Release(Struct, frozen=True, order=True):
    """A version of a package that contains XLA."""

    package: str
    """`jaxlib`, or `libtpu` on TPU."""
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.package}-{'.'.join(map(str, self.version))}"


class EraReleases(Struct, frozen=True):
    letter: str
    jaxlib: tuple[str, str]
    """The first and the last."""
    libtpu: tuple[str, ...] = ()


ERA_RELEASES = (
    EraReleases("A", ("0.4.13", "0.4.23")),
    EraReleases("B", ("0.4.24", "0.4.35"), ("0.0.2",)),
    EraReleases("C", ("0.4.36", "0.5.1"), ("0.0.4",)),
    EraReleases("D", ("0.5.3", "0.5.3"), ("0.0.11.1",)),
    EraReleases("E", ("0.6.0", "0.6.0")),
    EraReleases("F", ("0.6.1", "0.7.0"), ("0.0.17",)),
    EraReleases("G", ("0.7.1", "0.9.1"), ("0.0.24", "0.0.34")),
    EraReleases("H", ("0.9.2", "0.9.2")),
    EraReleases("I", ("0.10.0", "0.10.1")),
    EraReleases("J", ("0.10.2", "0.11.0")),
    EraReleases("K", ("0.11.1", "0.12.0.1"), ("0.0.51",)),
)
NEWEST_LETTER = ERA_RELEASES[-1].letter

_RELEASE = r"(?:(jaxlib|libtpu)-)?([0-9]{1,9}(?:\.[0-9]{1,9}){1,3})$"


def parse_version(text: str) -> tuple[int, ...]:
    """`0.7.2` as numbers."""
    return tuple(map(int, text.split(".")))


def find_release(name: str, package: str = JAXLIB) -> Release:
    """The release of a version (`jaxlib-0.7.2`, `0.7.2`), or the last of an era (`K`)."""
    for era in ERA_RELEASES:
        if name.upper() == era.letter:
            return releases_of_era(era, package)[0]
    match = re.match(_RELEASE, name)
    if match is None:
        letters = ", ".join(era.letter for era in ERA_RELEASES)
        problem = f"unknown era `{visible(name)}`"
        raise CommandError(f"{problem}: give one of {letters}, or a release: jaxlib-0.7.2")
    return Release(match[1] or package, parse_version(match[2]))


def releases_of_era(era: EraReleases, package: str) -> list[Release]:
    """Releases of an era, newest first: every libtpu seen, or the last and first jaxlib."""
    if package == LIBTPU and era.libtpu:
        return [Release(package, parse_version(version)) for version in reversed(era.libtpu)]
    first, last = era.jaxlib
    return [Release(JAXLIB, parse_version(version)) for version in dict.fromkeys((last, first))]


def era_number(release: Release) -> int:
    """The index of a release's era in `ERA_RELEASES`; the nearest for unknown releases."""
    firsts = [
        (parse_version(names[0]), number)
        for number, era in enumerate(ERA_RELEASES)
        if (names := era.libtpu if release.package == LIBTPU else era.jaxlib)
    ]
    older = [number for first, number in firsts if first <= release.version]
    return older[-1] if older else firsts[0][1]


def nearest_libtpu(release: Release) -> Release:
    """The last libtpu seen of a release's era, or of an earlier one."""
    if release.package == LIBTPU:
        return release
    until = ERA_RELEASES[: era_number(release) + 1]
    seen = [era for era in until if era.libtpu] or [era for era in ERA_RELEASES if era.libtpu][:1]
    return releases_of_era(seen[-1], LIBTPU)[0]
