"""Folders as XLA leaves them: which program is meant, and how several are told apart."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from hlomem.api.folder import (
    Choice,
    Module,
    ModuleSize,
    choose_module,
    draw_list,
    list_modules,
    measure_all,
    program_beside,
)
from hlomem.api.load import load, read_source
from hlomem.base.errors import InputError, UnknownNameError
from tests.api.test_load import LONG, LONG_SUFFIXES, SHORT, STEM, write
from tests.dump.test_parts import COMBINED

if TYPE_CHECKING:
    from pathlib import Path


def choose(folder: Path, wanted: str | None = None) -> Choice:
    return choose_module(folder, wanted, read_source)


def compiled(size: int, *shapes: str) -> str:
    """The allocations of a program with a temporary of so many bytes and these arguments."""
    heads = [f"allocation 0: size {size}, page 0, preallocated-temp:"]
    heads += [
        f"allocation {number + 1}: size 8, page 0, parameter {number}, shape |{shape}| at"
        " ShapeIndex {}:"
        for number, shape in enumerate(shapes)
    ]
    return "\n".join(["BufferAssignment:", *heads, ""])


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A folder as XLA leaves it: two programs in four files each, one in one gzipped file."""
    for stem in ("module_0001.jit_f", "module_0001.jit_f_grad"):
        names = [stem + suffix for suffix in LONG_SUFFIXES]
        write(tmp_path, dict(zip(names, SHORT.values(), strict=True)))
    write(tmp_path, {"plain.txt": COMBINED}, gzipped=("plain.txt",))
    write(tmp_path, {"module_0001.jit_f.txt": "HloModule f", "note.txt": "x", "empty.txt": ""})
    (tmp_path / "broken.txt.gz").write_bytes(b"\x1f\x8b")
    (tmp_path / "sub-live-range.txt").mkdir()
    return tmp_path


def test_a_folder_lists_its_dumps_in_the_order_of_their_names(three: Path) -> None:
    modules = list_modules(three)
    assert [module.name for module in modules] == [
        "module_0001.jit_f",
        "module_0001.jit_f_grad",
        "plain",
    ]
    assert modules[2] == Module("plain", (three / "plain.txt.gz",))
    assert [path.name for path in modules[0].files] == [
        "module_0001.jit_f" + suffix for suffix in LONG_SUFFIXES
    ]


def test_the_largest_program_of_a_run_is_taken(goldens: Path) -> None:
    for folder in sorted((goldens / "trials").glob("*/*")):
        sized = measure_all(list_modules(folder), read_source)
        choice = choose(folder)
        assert choice.module == sized[0].module
        assert choice.reason == f"the largest of {len(sized)} programs" or len(sized) == 1
        dump = load(folder)
        assert dump.assignment is not None
        allocations = dump.assignment.allocations
        assert sized[0].size == sum(
            each.size for each in allocations if each.color == 0 and not each.is_thread_local
        )


def test_a_dump_of_a_run_is_called_as_its_author_did(goldens: Path) -> None:
    dump = load(goldens / "trials/tpu/gpt")
    assert dump.title == "train_step"
    assert dump.chosen == "the largest of 3 programs"
    assert repr(dump) == ("<Dump 'train_step', the largest of 3 programs: 285 allocations, era K>")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("module_0001.jit_f", "module_0001.jit_f"),
        ("grad", "module_0001.jit_f_grad"),
        ("plain", "plain"),
        ("pl", "plain"),
    ],
)
def test_a_module_is_chosen_by_its_name_or_a_part_of_it(
    three: Path, wanted: str, found: str
) -> None:
    assert load(three, module=wanted).name == found


@pytest.mark.parametrize("wanted", ["train_step", "jit_train_step", "train"])
def test_a_program_is_chosen_by_the_name_its_author_gave_it(goldens: Path, wanted: str) -> None:
    choice = choose(goldens / "trials/cpu/gpt", wanted)
    assert (choice.module.title, choice.reason) == ("train_step", "")


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("jit", "{}: 2 programs match `jit`; the module is one of these:\n"),
        ("none\x1b", "{}: no program matches `none\\x1b`; the module is one of these:\n"),
    ],
)
def test_a_name_that_fits_none_or_several_is_refused(three: Path, wanted: str, says: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        choose(three, wanted)
    assert str(caught.value).startswith(says.format(three))
    assert "module_0001.jit_f_grad" in str(caught.value)


def test_compiles_of_one_function_are_told_apart_by_their_arguments(tmp_path: Path) -> None:
    for number, length in enumerate((64, 128, 512, 256)):
        name = f"module_{number:04}.jit_step.cpu_after_optimizations-buffer-assignment.txt"
        write(tmp_path, {name: compiled(length * 1024, "f32[16]{0}", f"s32[8,{length}]{{1,0}}")})
    assert draw_list(measure_all(list_modules(tmp_path), read_source)) == [
        "   512.0 KiB  step  module_0002  s32[8,512]",
        "   256.0 KiB  step  module_0003  s32[8,256]",
        "   128.0 KiB  step  module_0001  s32[8,128]",
        "    64.0 KiB  step  module_0000  s32[8,64]",
    ]
    choice = choose(tmp_path, "step")
    assert choice.module.name.startswith("module_0002")
    assert choice.reason == "the largest of 4 programs of this name"
    assert choose(tmp_path, "module_0001").module.name.startswith("module_0001")


def test_four_hundred_programs_do_not_fill_four_hundred_lines(tmp_path: Path) -> None:
    modules = [ModuleSize(Module(f"m{n}", (tmp_path,)), 1024) for n in range(400)]
    lines = draw_list(modules)
    assert len(lines) == 21
    assert lines[-1] == "   380.0 KiB  in 380 smaller"


def test_a_dump_that_cannot_be_read_is_listed_last(tmp_path: Path) -> None:
    write(tmp_path, {"a-buffer-assignment.txt": compiled(8)})
    (tmp_path / "b-buffer-assignment.txt.gz").write_bytes(b"\x1f\x8b")
    assert draw_list(measure_all(list_modules(tmp_path), read_source)) == [
        "         8 B  a",
        "  unreadable  b",
    ]
    assert choose(tmp_path).module.name == "a"


def test_a_dump_that_lies_there_twice_is_one_module(tmp_path: Path) -> None:
    write(tmp_path, LONG | {"p.txt": COMBINED})
    write(tmp_path, LONG | {"p.txt": COMBINED}, gzipped=(*LONG, "p.txt"))
    assert [module.name for module in list_modules(tmp_path)] == [STEM, "p"]
    assert [path.suffix for path in list_modules(tmp_path)[0].files] == [".txt"] * 4


def test_dumps_of_any_name_are_found_by_how_they_begin(goldens: Path) -> None:
    modules = list_modules(goldens / "seeds")
    assert [module.name[:3] for module in modules] == ["000", "001", "002", "003", "004"]
    assert load(goldens / "seeds", module="003").era.letter == "B"


def test_a_dump_of_any_name_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    write(tmp_path, {"x.txt": "\ufeff" + COMBINED})
    assert [module.name for module in list_modules(tmp_path)] == ["x"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "no XLA memory dump in this folder, which is empty\n  XLA_FLAGS="),
        ("note.txt", "no XLA memory dump in this folder\n  XLA_FLAGS="),
        ("m.cpu_after_optimizations.txt", "but HLO text: give the file and it is planned"),
    ],
)
def test_a_folder_without_dumps_is_refused_with_what_to_do(
    tmp_path: Path, name: str, says: str
) -> None:
    if name:
        write(tmp_path, {name: "x"})
    with pytest.raises(InputError, match=says):
        load(tmp_path)


def test_the_program_lies_beside_its_dump(goldens: Path, tmp_path: Path) -> None:
    [file] = (goldens / "trials/tpu/gpt").glob("*jit_train_step*-buffer-assignment.txt.gz")
    program = program_beside(file)
    assert program is not None
    assert program.name == file.name.replace("-buffer-assignment.txt", ".txt")
    shutil.copy(file, tmp_path)
    assert program_beside(tmp_path / file.name) is None
    assert load(tmp_path).module is None
