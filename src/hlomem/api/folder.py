"""The dumps in a folder written by XLA, by the names of their files: listed, measured, chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hlomem.assign.footprint import footprint, main_space
from hlomem.base.errors import InputError, UnknownNameError
from hlomem.base.patterns import lazy_pattern
from hlomem.base.sizes import format_bytes
from hlomem.base.source import Source, visible
from hlomem.dump.file_names import CODEGEN_NAMES, FILE_NAMES, codegen_names, program_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


DUMP_FLAGS = 'XLA_FLAGS="--xla_dump_to=DIR --xla_dump_hlo_as_text"'
_FILE_NAMES = tuple(dict.fromkeys(FILE_NAMES.values()))
_AFTER = lazy_pattern(r"\.(?:sm_[\d.]+[a-z]?_)?\w*?after_optimizations")
_SNIFF_BYTES = 64
_MAX_LISTED = 20
_MAX_SHAPES = 3


class Module(NamedTuple):
    name: str
    files: tuple[Path, ...]

    @property
    def title(self) -> str:
        """The name of the user's function."""
        return program_name(self.name)


class ModuleSize(NamedTuple):
    module: Module
    size: int | None
    """The bytes it needs; None where the file cannot be read."""
    arguments: tuple[str, ...] = ()


class Choice(NamedTuple):
    module: Module
    reason: str = ""
    """`the largest of 3 programs`; empty if there was no choice."""


def files_of(path: Path) -> tuple[Path, ...]:
    """The files of the dump that a file belongs to, in XLA's order."""
    plain = path.name.removesuffix(".gz")
    for suffix, short in _FILE_NAMES:
        if plain.endswith(suffix):
            stem = plain.removesuffix(suffix)
            return _existing(path, [stem + names.suffix for names in _FILE_NAMES])
        if plain == short:
            return _existing(path, [names.short for names in _FILE_NAMES])
    return (path,)


def program_beside(path: Path) -> Path | None:
    """The HLO text of a dump's file: `X.txt` for `X-buffer-assignment.txt`, or `module.hlo`."""
    names = ["module.hlo"]
    plain = path.name.removesuffix(".gz")
    for suffix, _ in _FILE_NAMES:
        if plain.endswith(suffix):
            names.insert(0, plain.removesuffix(suffix) + ".txt")
    candidates = [path.with_name(name + ending) for name in names for ending in ("", ".gz")]
    return next((candidate for candidate in candidates if answers_yes(candidate.is_file)), None)


def codegen_beside(path: Path) -> tuple[Path | None, ...]:
    """The files of `CODEGEN_NAMES` next to a dump's file; None for those that are missing."""
    sets: tuple[tuple[str, ...], ...] = CODEGEN_NAMES
    plain = path.name.removesuffix(".gz")
    for suffix, _ in _FILE_NAMES:
        if plain.endswith(suffix):
            sets = codegen_names(plain.removesuffix(suffix))
    for names in sets:
        found = tuple(next(iter(_there(path, name)), None) if name else None for name in names)
        if found[0] is not None:
            return found
    return (None,)


def _there(path: Path, name: str) -> list[Path]:
    """The file of a name next to `path`, plain or gzipped."""
    candidates = [path.with_name(name), path.with_name(name + ".gz")]
    return [candidate for candidate in candidates if answers_yes(candidate.is_file)][:1]


def whole_beside(path: Path) -> Path | None:
    """The program before partitioning as XLA wrote it, `X.before_optimizations.txt` or a proto."""
    found = _AFTER.search(path.name)
    names = ["before_optimizations.txt"]
    if found is not None:
        stem = f"{path.name[: found.start()]}.before_optimizations"
        names = [f"{stem}.txt", f"{stem}.hlo.pb", *names]
    candidates = [path.with_name(name + ending) for name in names for ending in ("", ".gz")]
    return next((candidate for candidate in candidates if answers_yes(candidate.is_file)), None)


def _existing(path: Path, names: list[str]) -> tuple[Path, ...]:
    """The files of these names next to `path`, plain or gzipped, and `path` itself."""
    found = []
    for name in names:
        if path in (path.with_name(name), path.with_name(name + ".gz")):
            found.append(path)
        else:
            found += _there(path, name)
    return tuple(found)


def answers_yes(question: Callable[[], bool]) -> bool:
    """The answer of the file system; False if it raises (too long, not allowed)."""
    try:
        return question()
    except OSError:
        return False


def list_modules(folder: Path) -> list[Module]:
    modules, seen = [], set[Path]()
    for path in _files_in(folder):
        if path.with_name(path.name.removesuffix(".gz")) in seen or not _is_dump(path):
            continue
        files = files_of(path)
        seen.update(file.with_name(file.name.removesuffix(".gz")) for file in files)
        modules.append(Module(_module_name(path), files))
    return modules


def _files_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise InputError(f"{visible(str(folder))}: {error.strerror or error}") from error


def _module_name(path: Path) -> str:
    plain = path.name.removesuffix(".gz")
    for suffix, short in _FILE_NAMES:
        if plain.endswith(suffix):
            return plain.removesuffix(suffix)
        if plain == short:
            return path.resolve().parent.name
    return plain.removesuffix(".txt")


def _is_dump(path: Path) -> bool:
    """Whether a file has one of XLA's names, or begins like a dump."""
    plain = path.name.removesuffix(".gz")
    if any(plain.endswith(suffix) or plain == short for suffix, short in _FILE_NAMES):
        return True
    if not plain.endswith(".txt"):
        return False
    import gzip  # noqa: PLC0415 - only a folder needs it
    import zlib  # noqa: PLC0415

    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(_SNIFF_BYTES).lstrip(b"\xef\xbb\xbf").startswith(b"BufferAssignment:")
    except (OSError, EOFError, zlib.error):
        return False


def measure_all(modules: Sequence[Module], read: Callable[[Path], Source]) -> list[ModuleSize]:
    """Dumps with their sizes, largest first; unreadable ones last."""
    sized = [_measure(module, read) for module in modules]
    return sorted(sized, key=lambda entry: -1 if entry.size is None else entry.size, reverse=True)


def _measure(module: Module, read: Callable[[Path], Source]) -> ModuleSize:
    """The size of a dump, by the heads of its allocations: nothing else is read of it."""
    from hlomem.dump.parts import parse_headers  # noqa: PLC0415 - only a folder needs it

    try:
        found = parse_headers(read(module.files[0]))
    except InputError:
        return ModuleSize(module, None)
    arguments = [head.parameter for head in found if head.parameter is not None]
    shapes = {argument.number: argument.shape for argument in arguments}
    return ModuleSize(
        module,
        footprint(found, main_space(found)),
        tuple(shape for _, shape in sorted(shapes.items())),
    )


def choose_module(folder: Path, wanted: str | None, read: Callable[[Path], Source]) -> Choice:
    """The largest dump of a folder, or of a program named (in part) `wanted`."""
    modules = list_modules(folder)
    if not modules:
        raise InputError(_nothing_in(folder))
    found = modules if wanted is None else _named(folder, modules, wanted, read)
    if len(found) == 1:
        return Choice(found[0])
    largest = measure_all(found, read)[0].module
    if wanted is None:
        return Choice(largest, f"the largest of {len(found)} programs")
    return Choice(largest, f"the largest of {len(found)} programs of this name")


def _named(
    folder: Path, modules: list[Module], wanted: str, read: Callable[[Path], Source]
) -> list[Module]:
    for is_meant in (
        lambda module: module.name == wanted,
        lambda module: module.title in {wanted, wanted.removeprefix("jit_")},
        lambda module: wanted in module.name,
    ):
        found = [module for module in modules if is_meant(module)]
        if len(found) == 1 or (found and len({module.title for module in found}) == 1):
            return found
    problem = f"{len(found)} programs match" if found else "no program matches"
    where = visible(str(folder))
    what = f"{where}: {problem} `{visible(wanted)}`; the module is one of these:"
    raise UnknownNameError("\n".join([what, *draw_list(measure_all(found or modules, read))]))


def draw_list(sized: Sequence[ModuleSize], most: int = _MAX_LISTED) -> list[str]:
    """One line per dump: size, name and, if names repeat, what distinguishes them."""
    alike: dict[str, list[ModuleSize]] = {}
    for entry in sized:
        alike.setdefault(entry.module.title, []).append(entry)
    told = [_difference(entry, alike[entry.module.title]) for entry in sized]
    lines = []
    for (module, size, _), difference in list(zip(sized, told, strict=True))[:most]:
        amount = "unreadable" if size is None else format_bytes(size)
        words = "  ".join(filter(None, (module.title, difference)))
        lines.append(f"{amount:>12}  {visible(words)}")
    if rest := sized[most:]:
        left = format_bytes(sum(entry.size or 0 for entry in rest))
        lines.append(f"{left:>12}  in {len(rest)} smaller")
    return lines


def _difference(one: ModuleSize, alike: list[ModuleSize]) -> str:
    if len(alike) == 1:
        return ""
    number = one.module.name.partition(".")[0]
    shapes = [
        shape.partition("{")[0]
        for position, shape in enumerate(one.arguments)
        if len({other.arguments[position : position + 1] for other in alike}) > 1
    ]
    more = f", {len(shapes) - _MAX_SHAPES} more" if len(shapes) > _MAX_SHAPES else ""
    return f"{number}  {', '.join(shapes[:_MAX_SHAPES])}{more}".rstrip()


def _nothing_in(folder: Path) -> str:
    names = [path.name for path in _files_in(folder)]
    where = visible(str(folder))
    problem = "no XLA memory dump in this folder"
    texts = [name for name in names if name.removesuffix(".gz").endswith("after_optimizations.txt")]
    if texts:
        return (
            f"{where}: {problem}, but HLO text: give the file and it is planned\n"
            f"  {visible(str(folder / texts[0]))}"
        )
    if not names:
        problem += ", which is empty"
    return f"{where}: {problem}\n  {DUMP_FLAGS} writes dumps, as text, when a program is compiled"
