"""Which versions of the format a text can be of."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import asdict

from hlomem.base.errors import CommandError
from hlomem.dump.eras import (
    ERAS,
    NEWEST,
    Era,
    Features,
    describe,
    era_of,
    recognise,
    releases_of,
)
from hlomem.dump.values import Style
from hlomem.machines.releases import Release, find_release


def letters(eras: tuple[Era, ...]) -> str:
    return "".join(era.letter for era in eras)


def test_the_eras_are_a_to_k() -> None:
    assert letters(ERAS) == "ABCDEFGHIJK"
    assert NEWEST.letter == "K"


@pytest.mark.parametrize("era", ERAS, ids=str)
def test_an_era_knows_all_its_features_and_is_recognised_by_them(era: Era) -> None:
    assert None not in asdict(era.features).values()
    assert recognise(era.features) == (era,)


@pytest.mark.parametrize(("older", "newer"), list(pairwise(ERAS)))
def test_neighbouring_eras_differ(older: Era, newer: Era) -> None:
    assert not older.features.agrees_with(newer.features)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Features(), "ABCDEFGHIJK"),
        (Features(split=True), "IJK"),
        (Features(split=False), "ABCDEFGH"),
        (Features(space_before_instruction=False), "A"),
        (Features(newline_after_instruction=False), "B"),
        (Features(operand_shapes=True), "ABC"),
        (Features(split=False, peak_index=True), "EFGH"),
        (Features(peak_cumulative=True, split=False), "FGH"),
        (Features(stack_trace=True, split=False), "GH"),
        (Features(says_none=True), "JK"),
        (Features(pages=True), "K"),
        (Features(report=frozenset({"by-allocation"})), "BCDEFG"),
        (Features(report=frozenset({"by-space"})), "HIJK"),
        (Features(report=frozenset({"none"})), "AB"),
    ],
)
def test_a_feature_narrows_the_eras(seen: Features, expected: str) -> None:
    assert letters(recognise(seen)) == expected


def test_a_combination_no_xla_writes_is_an_era_of_its_own() -> None:
    seen = Features(split=False, pages=True)
    (era,) = recognise(seen)
    assert era == Era("?", seen)
    assert describe((era,)) == "era unknown (no known XLA writes this combination)"


def test_merging_lets_the_later_word_count() -> None:
    merged = Features(split=True, pages=False).merged_with(Features(pages=True, says_none=None))
    assert merged == Features(split=True, pages=True)


@pytest.mark.parametrize(
    ("letter", "style"),
    [
        (
            "A",
            Style(space_before_instruction=False, newline_after_instruction=True, says_none=False),
        ),
        (
            "B",
            Style(space_before_instruction=True, newline_after_instruction=False, says_none=False),
        ),
        ("I", Style(says_none=False)),
        ("J", Style(says_none=True)),
    ],
)
def test_an_era_lays_values_out_in_its_style(letter: str, style: Style) -> None:
    assert era_of(find_release(letter)).style == style


@pytest.mark.parametrize(
    ("eras", "words"),
    [
        ("K", "era K (jaxlib 0.11.1 to 0.12.0.1, libtpu 0.0.51)"),
        ("G", "era G (jaxlib 0.7.1 to 0.9.1, libtpu 0.0.24, 0.0.34)"),
        ("E", "era E (jaxlib 0.6.0)"),
        ("IJ", "one of eras I, J (jaxlib 0.10.0 to 0.11.0)"),
    ],
)
def test_eras_are_described_in_words(eras: str, words: str) -> None:
    assert describe(tuple(era_of(find_release(letter)) for letter in eras)) == words


def test_an_era_without_releases_is_described_by_its_letter() -> None:
    assert str(Era("?", Features())) == "era ?"


@pytest.mark.parametrize(
    ("name", "package", "release", "letter"),
    [
        ("K", "jaxlib", Release("jaxlib", (0, 12, 0, 1)), "K"),
        ("k", "libtpu", Release("libtpu", (0, 0, 51)), "K"),
        ("E", "libtpu", Release("jaxlib", (0, 6, 0)), "E"),
        ("jaxlib-0.7.2", "jaxlib", Release("jaxlib", (0, 7, 2)), "G"),
        ("0.4.23", "jaxlib", Release("jaxlib", (0, 4, 23)), "A"),
        ("jaxlib-0.4.24", "jaxlib", Release("jaxlib", (0, 4, 24)), "B"),
        ("libtpu-0.0.34", "jaxlib", Release("libtpu", (0, 0, 34)), "G"),
        ("libtpu-0.0.20", "libtpu", Release("libtpu", (0, 0, 20)), "F"),
        ("jaxlib-0.3.0", "jaxlib", Release("jaxlib", (0, 3, 0)), "A"),
        ("jaxlib-1.0", "jaxlib", Release("jaxlib", (1, 0)), "K"),
    ],
)
def test_releases_and_letters_name_an_era(
    name: str, package: str, release: Release, letter: str
) -> None:
    assert find_release(name, package) == release
    assert era_of(release).letter == letter


@pytest.mark.parametrize(
    "name", ["", "Z", "jaxlib", "jaxlib-", "0", "0.7.2-rc1", "torch-2.0", "9" * 99]
)
def test_other_names_are_refused_with_a_list(name: str) -> None:
    with pytest.raises(CommandError, match="give one of A, B, C"):
        find_release(name)


def test_a_release_is_written_as_it_is_given() -> None:
    assert str(find_release("libtpu-0.0.34")) == "libtpu-0.0.34"


@pytest.mark.parametrize("era", ERAS, ids=str)
@pytest.mark.parametrize("package", ["jaxlib", "libtpu"])
def test_the_releases_of_an_era_write_it_the_newest_first(era: Era, package: str) -> None:
    releases = releases_of(era, package)
    assert releases == sorted(set(releases), reverse=True)
    assert releases[0] == find_release(era.letter, package)
    assert [era_of(each) for each in releases] == [era] * len(releases)
