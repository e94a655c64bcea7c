"""Which versions of the format a text can be of."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import pytest

from hlomem.dump.eras import ERAS, NEWEST, Era, Features, describe, era_of, recognise
from hlomem.dump.values import Style
from hlomem.errors import CommandError


def letters(eras: tuple[Era, ...]) -> str:
    return "".join(era.letter for era in eras)


def test_the_eras_are_a_to_k() -> None:
    assert letters(ERAS) == "ABCDEFGHIJK"
    assert NEWEST.letter == "K"


@pytest.mark.parametrize("era", ERAS, ids=str)
def test_an_era_knows_all_its_features_and_is_recognised_by_them(era: Era) -> None:
    assert all(getattr(era.features, each.name) is not None for each in fields(Features))
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
    assert describe((era,)) == "era unknown (no XLA we know writes this combination)"


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
    assert era_of(letter).style == style


@pytest.mark.parametrize(
    ("eras", "words"),
    [
        ("K", "era K (jaxlib 0.11.1 to 0.12.0.1, libtpu 0.0.51)"),
        ("G", "era G (jaxlib 0.7.1 to 0.9.0, libtpu 0.0.24, 0.0.34)"),
        ("E", "era E (jaxlib 0.6.0)"),
        ("IJ", "one of eras I, J (jaxlib 0.10.0 to 0.11.0)"),
    ],
)
def test_eras_are_described_in_words(eras: str, words: str) -> None:
    assert describe(tuple(era_of(letter) for letter in eras)) == words


def test_an_era_without_releases_is_described_by_its_letter() -> None:
    assert str(Era("?", Features())) == "era ?"


@pytest.mark.parametrize(
    ("name", "letter"),
    [
        ("K", "K"),
        ("g", "G"),
        ("jaxlib-0.4.13", "A"),
        ("jaxlib-0.4.1", "A"),
        ("0.4.24", "B"),
        ("0.4.35", "B"),
        ("jaxlib-0.4.36", "C"),
        ("0.7.2", "G"),
        ("0.9.1", "G"),
        ("0.9.2", "H"),
        ("0.10.1", "I"),
        ("jaxlib-0.12.0.1", "K"),
        ("jaxlib-1.0", "K"),
        ("libtpu-0.0.2", "B"),
        ("libtpu-0.0.1", "B"),
        ("libtpu-0.0.11.1", "D"),
        ("libtpu-0.0.34", "G"),
        ("libtpu-0.0.51", "K"),
    ],
)
def test_an_era_is_found_by_letter_or_release(name: str, letter: str) -> None:
    assert era_of(name).letter == letter


@pytest.mark.parametrize("name", ["", "L", "?", "jaxlib", "torch-2.0", "0", "0.4.x", "0.1.2.3.4.5"])
def test_a_name_of_no_era_is_refused(name: str) -> None:
    with pytest.raises(CommandError, match=r"give one of A, B, .*, K, or `jaxlib-0\.7\.2`"):
        era_of(name)
