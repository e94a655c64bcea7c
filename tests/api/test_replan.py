"""`hlomem.replan`: plans made from dumps alone are XLA's, and are planned, not copied."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

import hlomem
from hlomem.assign.packing import BufferInterval, Packing
from hlomem.base.errors import CommandError, HlomemError, InputError
from hlomem.check.verify import verify
from hlomem.dump.compare import find_differences
from hlomem.dump.dump import Dump
from hlomem.dump.records import Allocation
from hlomem.machines.registry import PLATFORMS
from tests.places import GOLDENS

SEEDS = sorted((GOLDENS / "seeds").glob("*.txt"))
ENTRIES = sorted(
    path.parent
    for path in (GOLDENS / "xla").glob("*/*/*/origin.json")
    if json.loads(path.read_text())["backend"] in PLATFORMS
)
DUMPS = [*SEEDS, *ENTRIES]
TIED = frozenset({"jaxlib-0.7.0/cpu/sort_argsort_topk", "libtpu-0.0.17/tpu-v5e/sort_argsort_topk"})
"""Dumps with comparators alike, whose order is lost where allocations are moved about."""
UNTOLD = frozenset({"jaxlib-0.12.0.1/cpu/twin_sends_other"})
"""Dumps of programs whose order of values no text tells (`tests/parity`)."""
TINY = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "scalar_only"
PRESET_COLORS = {1, 3}


def _id(path: Path) -> str:
    return path.name if path.suffix else "/".join(path.parts[-3:])


def test_an_update_of_something_unknown_is_refused(tmp_path: Path) -> None:
    entry = GOLDENS / "xla" / "libtpu-0.0.51" / "tpu-tpu7x" / "embed_scatter_add"
    for path in entry.glob("*.txt"):
        (tmp_path / path.name).write_text(path.read_text().replace("custom-call-", "infeed-"))
    with pytest.raises(InputError, match="updates an asynchronous operation"):
        hlomem.replan(hlomem.load(tmp_path))


def test_a_program_that_the_dump_does_not_tell_is_refused_in_a_line(tmp_path: Path) -> None:
    entry = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "call_without_operands"
    for path in entry.glob("*.txt"):
        text = path.read_text().replace("f32[64]{0} parameter(0)", "f32[64]{0} parameter()")
        (tmp_path / path.name).write_text(text)
    with pytest.raises(InputError) as refused:
        hlomem.replan(hlomem.load(tmp_path))
    [line] = str(refused.value).splitlines()
    assert "`%p.1 = f32[64]{0} parameter()" in line
    assert line.endswith("expected the number of the parameter: plan the module instead")


def _known(paths: Sequence[Path], names: frozenset[str], reason: str) -> list[object]:
    mark = pytest.mark.xfail(strict=True, reason=reason)
    return [pytest.param(path, marks=[mark] if _id(path) in names else []) for path in paths]


@pytest.mark.parametrize("path", SEEDS, ids=_id)
def test_the_seeds_come_out_byte_for_byte(path: Path) -> None:
    made = hlomem.replan(hlomem.load(path))
    assert made.dump.to_text() == path.read_text()


@pytest.mark.parametrize("entry", _known(ENTRIES, UNTOLD, "another order is as likely"), ids=_id)
def test_goldens_come_out_the_same_without_being_told_their_release(entry: Path) -> None:
    dump = hlomem.load(entry)
    assert find_differences(dump, hlomem.replan(dump).dump) == []


@pytest.mark.parametrize("path", _known(DUMPS, TIED | UNTOLD, "no sign of an order"), ids=_id)
def test_offsets_sizes_and_numbers_of_allocations_are_planned(path: Path) -> None:
    """A dump whose allocations were moved about gives the plan of the one that XLA wrote.

    Which values share bytes is left as it is: it tells what fusions may write over. So is what
    memory-space assignment had placed, and the order of thread-local allocations, which tells that
    of the computations they belong to.
    """
    dump = hlomem.load(path)
    platform, release = (note.split()[2].rstrip(":") for note in hlomem.replan(dump).notes[:2])
    backend, _, chip = platform.partition("-")
    made = hlomem.replan(_disturbed(dump), backend=backend, chip=chip, era=release)
    assert find_differences(dump, made.dump) == []


def _disturbed(dump: Dump) -> Dump:
    assert dump.assignment is not None
    stay = [each for each in dump.assignment.allocations if each.is_thread_local]
    move = [each for each in dump.assignment.allocations if not each.is_thread_local]
    allocations = [
        replace(each if each.color in PRESET_COLORS else _stretched(each), index=7 * number)
        for number, each in enumerate([*stay, *reversed(move)])
    ]
    assignment = replace(dump.assignment, allocations=tuple(allocations))
    parts = [
        part._replace(contents=part.contents._replace(assignment=assignment))
        if part.contents.assignment is not None
        else part
        for part in dump.parts
    ]
    return replace(dump, parts=tuple(parts))


def _stretched(allocation: Allocation) -> Allocation:
    values = [replace(v, offset=3 * v.offset, size=3 * v.size) for v in allocation.values]
    return replace(allocation, size=3 * allocation.size, values=tuple(values))


@pytest.mark.parametrize("path", SEEDS, ids=_id)
def test_the_checker_agrees(path: Path) -> None:
    assert verify(hlomem.replan(hlomem.load(path)).dump).is_clean


def test_another_heap_algorithm_gives_another_plan() -> None:
    def one_after_another(buffers: Sequence[BufferInterval], _: int) -> Packing:
        offset_by_id, size = {}, 0
        for buffer in buffers:
            offset_by_id[buffer.id] = size
            size += buffer.size
        return Packing(offset_by_id, size)

    dump = hlomem.load(SEEDS[2])
    made = hlomem.replan(dump, pack=one_after_another)
    assert [each.stage for each in find_differences(dump, made.dump)] == ["assignment"]


def test_the_notes_say_what_was_assumed() -> None:
    made = hlomem.replan(hlomem.load(SEEDS[3]))
    assert made.notes[:2] == (
        "planned for tpu-v5p: its layouts are tiled",
        "planned as libtpu-0.0.2",
    )
    assert "bodies of 2 fusions are unknown" in made.notes[2]


@pytest.mark.parametrize("release", ["jaxlib-0.11.2", "jaxlib-0.12.0.1"])
def test_of_the_releases_of_an_era_the_one_is_found_that_planned(release: str) -> None:
    for entry in ENTRIES:
        if entry.parts[-3] == release:
            dump = hlomem.load(entry)
            told = hlomem.replan(dump, era=release)
            assert str(hlomem.replan(dump)) == str(told)


def test_an_era_or_another_dump_decides_how_it_is_written() -> None:
    dump = hlomem.load(TINY)
    old = hlomem.load(GOLDENS / "xla" / "jaxlib-0.4.13" / "cpu" / "scalar_only")
    assert hlomem.replan(dump, era="A").dump.era.letter == "A"
    assert hlomem.replan(dump, like=old).dump.era.letter == "A"
    with pytest.raises(CommandError, match="not both"):
        hlomem.replan(dump, era="A", like=old)


def test_all_three_parts_are_needed() -> None:
    whole = hlomem.load(TINY)
    for part in whole.parts:
        rest = tuple(each for each in whole.parts if each is not part)
        if part.kind == "report":
            assert hlomem.replan(replace(whole, parts=rest)).dump.report is None
        else:
            with pytest.raises(InputError, match="needs allocations, values and live ranges"):
                hlomem.replan(replace(whole, parts=rest))


@pytest.mark.parametrize("path", SEEDS, ids=_id)
def test_a_damaged_dump_is_planned_or_refused(path: Path) -> None:
    random = Random(path.name)  # noqa: S311 - damage, not cryptography
    for _ in range(25):
        lines = path.read_text().split("\n")
        one, other = random.randrange(len(lines)), random.randrange(len(lines))
        if random.random() < 0.5:
            del lines[one]
        else:
            lines[one] = re.sub(r"\d+", str(other), lines[one], count=1)
        with suppress(HlomemError):
            hlomem.replan(hlomem.load("\n".join(lines)))


TRIALS = sorted(path.parent for path in GOLDENS.glob("trials/*/*/origin.json"))
OTHER_ORDER = {"concat_oom", "decode_oom", "gpt_oom"}
"""Compiles that ended in an error: libtpu lists their allocations in another order."""


@pytest.mark.parametrize("folder", TRIALS, ids=lambda folder: "-".join(folder.parts[-2:]))
def test_programs_as_users_compile_them_are_planned_anew(folder: Path) -> None:
    dump = hlomem.load(folder)
    again = hlomem.replan(dump).dump
    if folder.name in OTHER_ORDER:
        assert _sizes(again) == _sizes(dump)
    else:
        assert find_differences(dump, again) == []


def _sizes(dump: Dump) -> list[tuple[int, int]]:
    """The allocations of a dump, whatever their order."""
    assert dump.assignment is not None
    return sorted((each.color, each.size) for each in dump.assignment.allocations)
