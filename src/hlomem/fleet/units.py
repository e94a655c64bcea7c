"""Files that belong together: the dumps, modules and protos of a listing.

In: files with their names. Out: units, each of which is read as one: a dump with its companions and
its program, a text of HLO, or a file of protos. Names are XLA's and those of `hlomem.api.folder`; a
`.txt` of another name is a dump if it begins like one. Where XLA wrote a program as text and as a
proto, it counts once; programs before optimization have no memory plan and are passed over.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hlomem.dump.file_names import FILE_NAMES
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
    """Files that are read as one."""

    kind: Kind
    name: str
    """The module's, as the files have it."""
    files: tuple[FileEntry, ...]
    """The dump's first, its program's text last."""
    path: str
    """Its first file, from the scanned path on."""
    has_program: bool = False
    """Whether the last file is the text of a dump's program."""
    archive: str = ""
    """The archive it was unpacked from."""
    program: int | None = None
    """Of a file of several programs the only one to read, by number; None for all."""
    data: tuple[bytes, ...] = ()
    """The files' bytes, where whoever reads them cannot reach the files."""

    @property
    def source(self) -> str:
        """How its user knows it."""
        return f"{self.archive}!/{self.path}" if self.archive else self.files[0].path

    @property
    def place(self) -> str:
        """Its path without what tells the files of one dump apart: the same in every run."""
        plain = self.path.removesuffix(".gz")
        for ending in (_MAIN.suffix, f"/{_MAIN.short}"):
            plain = plain.removesuffix(ending)
        return plain

    @property
    def id(self) -> str:
        """The same for the same source."""
        text = self.source.encode("utf-8", "surrogateescape")
        return blake2b(text, digest_size=8).hexdigest()

    @property
    def stamp(self) -> str:
        """Another once one of its files has changed, or has come or gone; else its archive's."""
        if self.archive:
            return self.files[0].stamp
        text = "\n".join(f"{file.name} {file.stamp}" for file in self.files)
        return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)

    @property
    def names(self) -> str:
        """The names of its files, in one text."""
        return "\n".join(file.name for file in self.files)


def is_archive(name: str) -> bool:
    """Whether a file is one of many files, by its name."""
    return name.lower().endswith(_ARCHIVES)


def group_folders(
    entries: Iterable[FileEntry], root: str, begins: Callable[[FileEntry], bytes]
) -> Iterator[Unit]:
    """The units of all files below a path; `begins` reads the beginning of a file."""
    folders: dict[str, list[FileEntry]] = {}
    for entry in entries:
        folders.setdefault(entry.path.rpartition("/")[0], []).append(entry)
    for folder in sorted(folders):
        for unit in _Folder(folder, folders[folder], begins).units():
            yield replace(unit, path=_path_from(unit.files[0].path, root))


def _path_from(path: str, root: str) -> str:
    """A path from a root on; a file that is the root itself by its name."""
    prefix = root.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else path.rpartition("/")[2]


def unit_of_file(entry: FileEntry, begins: Callable[[FileEntry], bytes]) -> Unit:
    """The unit of a file that was named itself: of any name, it is what it begins like."""
    found = list(group_folders([entry], entry.path, begins))
    if found:
        return found[0]
    start = begins(entry).lstrip(b"\xef\xbb\xbf\r\n ")
    kind: Kind = "module" if start.startswith((b"HloModule", b"//", _GZIP)) else "proto"
    return Unit(kind=kind, name=entry.name, files=(entry,), path=entry.name)


class _Folder:
    """The files of one folder, by their names without `.gz`."""

    def __init__(
        self, path: str, entries: list[FileEntry], begins: Callable[[FileEntry], bytes]
    ) -> None:
        self._title = path.rpartition("/")[2]
        self._begins = begins
        self._files = {entry.name.removesuffix(".gz"): entry for entry in entries}
        self._taken: set[str] = set()
        self._stems: set[str] = set()
        """The names of dumps, as their protos would have them."""

    def units(self) -> Iterator[Unit]:
        """Dumps first: what they take is nobody else's."""
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
                yield self._dump(stem, [stem + file.suffix for file in _FILE_NAMES], f"{stem}.txt")
        if _MAIN.short in self._files:
            yield self._dump(self._title, [file.short for file in _FILE_NAMES], "module.hlo")

    def _dump(self, title: str, names: list[str], program: str) -> Unit:
        """A dump of these files, with the text of its program where it lies beside them."""
        beside = [name for name in (program, "module.hlo") if name in self._files][:1]
        found = [name for name in (*names, *beside) if name in self._files]
        self._taken.update(found)
        self._stems.add(title)
        files = tuple(self._files[name] for name in found)
        made = self._unit("dump", title, *files)
        return replace(made, has_program=bool(beside))

    def _unit(self, kind: Kind, title: str, *files: FileEntry) -> Unit:
        return Unit(kind=kind, name=title, files=files, path=files[0].name)

    def _is_dump(self, entry: FileEntry) -> bool:
        return self._begins(entry).lstrip(b"\xef\xbb\xbf").startswith(_MARK)
