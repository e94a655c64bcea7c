"""Releases by name, by era, and the libtpu of a jaxlib's time."""

from __future__ import annotations

import pytest

from hlomem.machines.releases import (
    ERA_RELEASES,
    EraReleases,
    Release,
    era_number,
    find_release,
    nearest_libtpu,
    parse_version,
    releases_of_era,
)


def test_eras_follow_one_another_without_a_gap_in_order() -> None:
    versions = [parse_version(text) for era in ERA_RELEASES for text in era.jaxlib]
    assert versions == sorted(versions)
    assert [era.letter for era in ERA_RELEASES] == sorted(era.letter for era in ERA_RELEASES)


@pytest.mark.parametrize("number", range(len(ERA_RELEASES)))
@pytest.mark.parametrize("package", ["jaxlib", "libtpu"])
def test_every_release_of_an_era_is_of_that_era(number: int, package: str) -> None:
    for release in releases_of_era(ERA_RELEASES[number], package):
        assert era_number(release) == number


@pytest.mark.parametrize(
    ("name", "libtpu"),
    [
        ("libtpu-0.0.24", "libtpu-0.0.24"),
        ("jaxlib-0.12.0.1", "libtpu-0.0.51"),
        ("jaxlib-0.10.0", "libtpu-0.0.34"),  # of era I none was seen
        ("jaxlib-0.4.13", "libtpu-0.0.2"),  # the oldest there is
    ],
)
def test_the_libtpu_of_a_releases_time(name: str, libtpu: str) -> None:
    assert str(nearest_libtpu(find_release(name))) == libtpu


def test_an_era_without_a_libtpu_names_its_jaxlib() -> None:
    era = EraReleases("E", ("0.6.0", "0.6.0"))
    assert releases_of_era(era, "libtpu") == [Release("jaxlib", (0, 6, 0))]
