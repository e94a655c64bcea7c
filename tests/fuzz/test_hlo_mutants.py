"""Damaged modules are read or refused with a `ParseError`; nothing else ever comes out."""

from __future__ import annotations

import zlib
from random import Random
from typing import TYPE_CHECKING

import pytest

from hlomem.base.errors import ParseError
from hlomem.hlo import HloModule, format_module, parse
from tests.fuzz import mutants
from tests.fuzz.mutants import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MUTANTS_PER_KIND = 30


def use_everything(module: HloModule) -> str:
    """Ask a module for all it has; what it still holds as text may turn out to be wrong."""
    for instruction in module.iter_instructions():
        _ = instruction.metadata, instruction.backend_config, instruction.frontend_attributes
        _ = instruction.users, instruction.calls, instruction.async_wrapped_computation
        _ = instruction.output_to_operand_aliasing, instruction.custom_call_target
        _ = instruction.stack_frames
    _ = module.input_output_alias, module.buffer_donor, module.entry_computation_layout
    _ = module.replica_count, module.num_partitions, module.is_scheduled
    return format_module(module)


def refusal(text: str, *, lazy: bool) -> str:
    """The words a text is refused with, empty where it is read; anything else raised is a bug.

    What is read prints a text that is read, too, and that prints the same.
    """
    try:
        printed = use_everything(parse(text, "mutant.hlo", lazy=lazy))
    except ParseError as error:
        return str(error)
    if not lazy:
        assert format_module(parse(printed, lazy=False)) == printed
    return ""


def check_mutant(text: str) -> bool:
    """Whether a text is read; what is refused is refused in words, with a place."""
    lazy, full = refusal(text, lazy=True), refusal(text, lazy=False)
    for words in filter(None, (lazy, full)):
        assert words.startswith("mutant.hlo:")
        assert len(words) < 3000
    assert full or not lazy, "the full parse checks all that anybody may ask for"
    return not full


@pytest.mark.parametrize("kind", [*KINDS, mutants.several], ids=lambda kind: kind.__name__)
def test_mutants_are_read_or_refused_in_words(
    goldens: Path, kind: Callable[[Random, str], str]
) -> None:
    paths = sorted(goldens.glob("xla/*/*/*/module.hlo"))
    seeds = [text for text in (path.read_text() for path in paths) if len(text) < 12_000]
    assert len(seeds) > 20
    random = Random(zlib.crc32(kind.__name__.encode()))  # noqa: S311 - the same every time
    for _ in range(MUTANTS_PER_KIND):
        check_mutant(kind(random, random.choice(seeds)))
