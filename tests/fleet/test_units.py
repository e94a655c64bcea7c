"""Which files make a unit, by their names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.fleet.storage import FileEntry
from hlomem.fleet.units import Unit, group_folders, unit_of_file

STEM = "module_0001.jit_step.cpu_after_optimizations"


def _group(*names: str, dumps: frozenset[str] = frozenset()) -> list[Unit]:
    entries = [FileEntry(f"root/folder/{name}", 1, "stamp") for name in names]
    return list(
        group_folders(
            entries, "root", lambda entry: b"BufferAssignment:" if entry.name in dumps else b""
        )
    )


def test_a_dump_takes_its_companions_and_its_program() -> None:
    names = (
        f"{STEM}-buffer-assignment.txt",
        f"{STEM}-live-range.txt.gz",
        f"{STEM}.txt",
        "module_0001.jit_step.before_optimizations.txt",
    )
    [unit] = _group(*names)
    assert [file.name for file in unit.files] == list(names[:3])
    assert (unit.kind, unit.has_program) == ("dump", True)
    assert unit.place == f"folder/{STEM}"


def test_a_program_that_lies_there_as_text_and_as_proto_counts_once() -> None:
    assert [unit.kind for unit in _group(f"{STEM}-buffer-assignment.txt", f"{STEM}.hlo.pb")] == [
        "dump"
    ]
    assert [unit.kind for unit in _group(f"{STEM}.txt", f"{STEM}.hlo.pb")] == ["proto"]


def test_a_file_that_was_named_is_read_though_another_counts_for_it() -> None:
    entry = FileEntry(f"root/folder/{STEM}.txt", 1, "stamp")
    unit = unit_of_file(entry, lambda _: b"")
    assert (unit.kind, unit.files) == ("module", (entry,))


def test_short_names_are_named_after_their_folder() -> None:
    [unit] = _group("buffer-assignment.txt", "values.txt", "module.hlo", "meta.json")
    assert (unit.name, unit.place, len(unit.files)) == ("folder", "folder", 3)


def test_other_texts_are_dumps_only_if_they_begin_like_one() -> None:
    units = _group("one.txt", "other.txt", dumps=frozenset({"one.txt"}))
    assert [unit.name for unit in units] == ["one"]


@given(
    st.sets(
        st.sampled_from(
            [
                *(f"{stem}{end}{gz}" for stem in (STEM, "x") for gz in ("", ".gz") for end in (
                    "-buffer-assignment.txt", "-live-range.txt", ".txt", ".hlo.pb", ".hlo",
                )),
                "buffer-assignment.txt", "live-range.txt", "module.hlo", "jit_f-00-cache",
                "p.xplane.pb", "a.tar.gz", "notes.md",
            ]
        )
    )
)  # fmt: skip
def test_no_file_is_in_two_units(names: set[str]) -> None:
    plain = {name.removesuffix(".gz"): name for name in names}
    units = _group(*plain.values())
    paths = [file.path for unit in units for file in unit.files if file.name != "module.hlo"]
    assert len(paths) == len(set(paths))
    assert len({unit.id for unit in units}) == len(units)
    assert not [path for path in paths if path.endswith((".md", ".tar.gz"))]


def test_the_files_about_generated_code_belong_to_their_dump() -> None:
    stem = "module_0001.jit_f.cl_1"
    names = [
        f"{stem}.after_codegen.txt",
        f"{stem}.after_optimizations-buffer-assignment.txt",
        f"{stem}.after_optimizations.txt",
        f"{stem}.tpu_comp_env.txt",
    ]
    [unit] = _group(*names)
    assert [file.name for file in unit.files] == [names[1], names[0], names[3], names[2]]
    assert (unit.has_program, unit.about_code) == (True, 2)
