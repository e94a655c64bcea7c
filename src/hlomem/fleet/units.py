"""Groups files into units: a dump with its companions and program, an HLO text, or a proto."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hlomem.dump.file_names import CODEGEN_NAMES, FILE_NAMES, codegen_names
from hlomem.fleet.storage import FileEntry  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Kind: TypeAlias = Literal["dump", "module", "proto", "archive", "folder"]

_FILE_NAMES = tuple(dict.fromkeys(FILE_NAMES.values()))
_MAIN = _FILE_NAMES[0]
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
_OPTIMIZED = "after_optimizations"
_NOT_OPTIMIZED = "before_optimizations"
_PROTOS = (".pb", ".pb.gz", "-cache")
SNIFFED = 64
_MARK = b"BufferAssignment:"
_GZIP = b"\x1f\x8b"


class Unit(Struct, frozen=True, kw_only=True):
    kind: Kind
    name: str
    """The module's name in the file names."""
    files: tuple[FileEntry, ...]
    """The dump's first, its program's text last."""
    path: str
    """Its first file, relative to the scanned path."""
    has_program: bool = False
    """Whether the last file is the text of a dump's program."""
    about_code: int = 0
    """The number of files about generated code, which come before the program's text."""
    archive: str = ""
    program: int | None = None
    """The index of the only program to read; None for all."""
    data: tuple[bytes, ...] = ()
    """The files' bytes, if workers cannot reach the files."""

    @property
    def source(self) -> str:
        return f"{self.archive}!/{self.path}" if self.archive else self.files[0].path

    @property
    def place(self) -> str:
        """Its path without the suffixes of XLA's files: the same in every run."""
        plain = self.path.removesuffix(".gz")
        for ending in (_MAIN.suffix, f"/{_MAIN.short}"):
            plain = plain.removesuffix(ending)
        return plain

    @property
    def id(self) -> str:
        """A hash of its source."""
        text = self.source.encode("utf-8", "surrogateescape")
        return blake2b(text, digest_size=8).hexdigest()

    @property
    def stamp(self) -> str:
        """Changes with its set of files and their stamps; for archives, the archive's stamp."""
        if self.archive:
            return self.files[0].stamp
        text = "\n".join(f"{file.name} {file.stamp}" for file in self.files)
        return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def names(self) -> str:
        return "\n".join(file.name for file in self.files)


def is_archive(name: str) -> bool:
    return name.lower().endswith(_ARCHIVES)


def group_folders(
    entries: Iterable[FileEntry], root: str, begins: Callable[[FileEntry], bytes]
) -> Iterator[Unit]:
    """The units of files below a path; `begins` reads the beginning of a file."""
    folders: dict[str, list[FileEntry]] = {}
    for entry in entries:
        folders.setdefault(entry.path.rpartition("/")[0], []).append(entry)
    for folder in sorted(folders):
        for unit in _Folder(folder, folders[folder], begins).units():
            yield replace(unit, path=_path_from(unit.files[0].path, root))


def _path_from(path: str, root: str) -> str:
    """A path relative to a root; the name of a file that is the root itself."""
    prefix = root.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else path.rpartition("/")[2]


def unit_of_file(entry: FileEntry, begins: Callable[[FileEntry], bytes]) -> Unit:
    """The unit of a file given by name, recognised by its beginning if necessary."""
    found = list(group_folders([entry], entry.path, begins))
    if found:
        return found[0]
    start = begins(entry).lstrip(b"\xef\xbb\xbf\r\n ")
    kind: Kind = "module" if start.startswith((b"HloModule", b"//", _GZIP)) else "proto"
    return Unit(kind=kind, name=entry.name, files=(entry,), path=entry.name)


class _Folder:
    def __init__(
        self, path: str, entries: list[FileEntry], begins: Callable[[FileEntry], bytes]
    ) -> None:
        self._title = path.rpartition("/")[2]
        self._begins = begins
        self._files = {entry.name.removesuffix(".gz"): entry for entry in entries}
        self._taken: set[str] = set()
        self._stems: set[str] = set()
        """The names of dumps, without the suffixes of their files."""

    def units(self) -> Iterator[Unit]:
        """Dumps first, then the files they did not claim."""
        yield from self._dumps()
        for name, entry in self._files.items():
            if name in self._taken or _NOT_OPTIMIZED in name or is_archive(entry.name):
                continue
            stem = name.removesuffix(".hlo.pb")
            if entry.name.endswith(_PROTOS):
                if stem not in self._stems:
                    yield self._unit("proto", name.removesuffix(".pb"), entry)
            elif name.endswith((f"{_OPTIMIZED}.txt", ".hlo")):
                if f"{name.removesuffix('.txt')}.hlo.pb" not in self._files:
                    yield self._unit("module", name.rpartition(".")[0], entry)
            elif name.endswith(".txt") and self._is_dump(entry):
                yield self._unit("dump", name.removesuffix(".txt"), entry)

    def _dumps(self) -> Iterator[Unit]:
        for name in list(self._files):
            if name.endswith(_MAIN.suffix):
                stem = name.removesuffix(_MAIN.suffix)
                names = [stem + file.suffix for file in _FILE_NAMES]
                yield self._dump(stem, names, codegen_names(stem), f"{stem}.txt")
        if _MAIN.short in self._files:
            names = [file.short for file in _FILE_NAMES]
            yield self._dump(self._title, names, CODEGEN_NAMES, "module.hlo")

    def _dump(
        self, title: str, names: list[str], about: tuple[tuple[str, ...], ...], program: str
    ) -> Unit:
        """A dump of these files, with the text of its program if it exists."""
        texts = [name for name in (program, "module.hlo") if name in self._files][:1]
        code = [name for one in about for name in one if name in self._files]
        found = [name for name in (*names, *code, *texts) if name in self._files]
        self._taken.update(found)
        self._stems.add(title)
        made = self._unit("dump", title, *(self._files[name] for name in found))
        return replace(made, has_program=bool(texts), about_code=len(code))

    def _unit(self, kind: Kind, title: str, *files: FileEntry) -> Unit:
        return Unit(kind=kind, name=title, files=files, path=files[0].name)

    def _is_dump(self, entry: FileEntry) -> bool:
        return self._begins(entry).lstrip(b"\xef\xbb\xbf").startswith(_MARK)
