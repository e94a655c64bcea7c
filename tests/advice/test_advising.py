"""Advice: every dump is advised on, promises are kept, and no rule takes the others with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

import hlomem
from hlomem.advice.advising import RULES, advise_with
from hlomem.api.advise import advise, case_of
from hlomem.api.load import find_program, load
from hlomem.base.errors import InputError
from hlomem.report.screens.advice_text import draw_advice
from tests.advice.trial_goldens import (
    FOLDERS,
    advice_of,
    advised,
    assignments,
    holds,
    saved_by_xla,
)
from tests.conftest import GOLDENS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hlomem.advice.case import Case
    from hlomem.report.data.advice import Advice

PAIRS = GOLDENS / "pairs"
SEED = GOLDENS / "seeds/003_e0d5fae9bf2de249.txt"
WEIGHT = {"high": 1.0, "medium": 0.7, "low": 0.4}


def _module(folder: Path) -> str:
    return (folder / "module.hlo").read_text()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: "-".join(path.parts[-2:]))
def test_every_program_as_users_compile_it_is_advised_on(folder: Path) -> None:
    for path in assignments(folder):
        report = advise(load(path), module=find_program(str(path)))
        assert not [note for note in report.notes if "bug" in note or "could not" in note]
        for each in report.advice:
            assert each.how
            assert "XLA_FLAGS" not in each.how  # no flag of a scheduler is advised
            if each.least is None:
                assert (each.method, each.most, each.got) == ("possible", None, None)
            else:
                assert each.most is not None
                assert 0.01 * report.size < each.least <= each.most <= report.size


@pytest.mark.parametrize(
    ("before", "after", "rule", "function"),
    [
        ("cpu/gpt", "cpu/gpt_donate", "donate", "train_step"),
        ("tpu/gpt", "tpu/gpt_donate", "donate", "train_step"),
        ("cpu/decode", "cpu/decode_donate", "donate", "decode"),
        ("tpu/decode", "tpu/decode_donate", "donate", "decode"),
    ],
)
def test_xla_saves_what_was_promised(before: str, after: str, rule: str, function: str) -> None:
    advice = advice_of(before, rule, function)
    assert holds(advice, saved_by_xla(before, after, function))


@pytest.mark.parametrize("name", ["cpu/gpt", "tpu/gpt", "tpu/conv"])
def test_what_saves_most_and_is_surest_comes_first(name: str) -> None:
    worth = [each.saves * WEIGHT[each.confidence] for each in advised(name).advice]
    assert worth == sorted(worth, reverse=True)


def _raise_a_bug(_subject: Case) -> Iterator[Advice]:
    raise KeyError("fusion.2")


def _raise_an_error(_subject: Case) -> Iterator[Advice]:
    raise InputError("no such thing")


def test_a_rule_that_fails_is_left_out_with_a_note() -> None:
    folder = PAIRS / "donation_dropped/after"
    subject = case_of(hlomem.explain(folder, program=_module(folder)).memory)
    rules = {"bad": _raise_a_bug, "worse": _raise_an_error, "donate": RULES["donate"]}
    report = advise_with(rules, subject)
    assert [each.rule for each in report.advice] == ["donate"]
    assert report.notes == (
        "`bad` was skipped because of a bug in hlomem: KeyError: 'fusion.2'",
        "`worse` could not be tried: no such thing",
    )


def test_a_dump_alone_is_enough() -> None:
    report = advise(load(SEED))
    assert "the program was rebuilt from the dump" in report.notes
    [layout] = [each for each in report.advice if each.rule == "layout"]
    assert layout.title.startswith("take the result that copy.4 copies in layout {2,1,0}")
    assert layout.least == layout.most == 335790080


def test_a_donation_in_a_program_made_of_a_dump_is_less_sure() -> None:
    folder = PAIRS / "donation_dropped/after"
    [rebuilt] = [
        each
        for each in advise(replace(load(folder), open_module=None)).advice
        if each.rule == "donate"
    ]
    [known] = [each for each in advise(_module(folder)).advice if each.rule == "donate"]
    assert (rebuilt.least, rebuilt.most) == (known.least, known.most)
    assert (rebuilt.confidence, known.confidence) == ("medium", "high")


def _grown(folder: Path, share: float) -> hlomem.Dump:
    """A dump that reserves some more than it does."""
    dump = load(folder)
    assert dump.assignment is not None
    total = sum(each.size for each in dump.assignment.allocations)
    first, *rest = dump.assignment.allocations
    more = replace(first, size=first.size + round(total * share))
    larger = replace(dump.assignment, allocations=(more, *rest))
    part = next(each for each in dump.parts if each.kind == "assignment")
    changed = part._replace(contents=part.contents._replace(assignment=larger))
    parts = tuple(changed if each is part else each for each in dump.parts)
    return hlomem.Dump(dump.name, parts, dump.eras)


@pytest.mark.parametrize(("share", "confidence"), [(0.0005, "high"), (0.01, "low")])
def test_only_a_plan_that_differs_by_more_than_a_thousandth_makes_advice_less_sure(
    share: float, confidence: str
) -> None:
    folder = PAIRS / "donation_dropped/after"
    module = hlomem.hlo.parse(_module(folder))
    report = advise(_grown(folder, share), module=module)
    [donation] = [each for each in report.advice if each.rule == "donate"]
    assert donation.confidence == confidence
    assert any("savings may differ" in note for note in report.notes) == (confidence == "low")


@pytest.mark.parametrize("name", ["cpu/gpt", "tpu/gpt", "tpu/conv", "tpu/fsdp"])
def test_a_screen_but_for_its_code_has_80_columns(name: str) -> None:
    lines = [line for line in draw_advice(advised(name), 80) if line and line[0][1] != "cyan"]
    assert max(len("".join(piece for piece, _ in line)) for line in lines) <= 80
