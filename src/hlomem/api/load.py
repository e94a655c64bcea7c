"""Loads dumps and modules from files, folders, standard input and text, gzipped or not.

Bytes that are not UTF-8 are kept as surrogates. Binary files are opened by `hlomem.api.protos`.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from hlomem import hlo
from hlomem.base.errors import CommandError, InputError
from hlomem.base.patterns import lazy_pattern, repeated
from hlomem.base.source import Source, visible
from hlomem.hlo.ir import HloModule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from gzip import GzipFile
    from pathlib import Path

    from hlomem.api.folder import Module
    from hlomem.api.protos import ProtoProgram
    from hlomem.dump.codegen import CodegenTexts
    from hlomem.dump.dump import Dump

_Parsed = TypeVar("_Parsed")

_GZIP_MAGIC = b"\x1f\x8b"
_PIECE = 1 << 20
_MAX_GROWTH = 100
"""Limit of the compression ratio; dumps compress 5 to 25 times."""
MAX_BYTES = 4 << 30
_max_bytes = ContextVar("max_bytes", default=MAX_BYTES)
"""The limit of every input, set by the command line."""
_seen = ContextVar[dict[int, list[tuple[str, Any]]] | None]("seen", default=None)
"""Texts read within `reading_once`, by length: comparing two large texts is faster than hashing."""
_TEXT_STARTS = (b"BufferAssignment:", b"HloModule", b"HloLiveRange", b"Total bytes used:", b"//")
_OOM = lazy_pattern(r"RESOURCE_EXHAUSTED|bfc_allocator\.cc")
_BLANKS = repeated(r"\s++|//[^\n]*+|/\*(?s:.*?)\*/")
_MODULE_START = lazy_pattern(rf"\ufeff?{_BLANKS}(?:HloModule\b|ENTRY\s)")


@contextmanager
def _holding(variable: ContextVar[Any], value: object) -> Iterator[None]:
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


def reading_once() -> AbstractContextManager[None]:
    """Within the block, equal texts are parsed once and share their records."""
    return _holding(_seen, {})


def limited_to(size: int) -> AbstractContextManager[None]:
    """Within the block, inputs of more than `size` bytes, unpacked, are rejected."""
    return _holding(_max_bytes, size)


def max_input() -> int:
    """The limit of an input in bytes, unpacked."""
    return _max_bytes.get()


def read_source(path: str | Path) -> Source:
    """The text of a file, gzipped or not, or of standard input for `-`."""
    name = "<stdin>" if str(path) == "-" else str(path)
    return _as_text(name, read_bytes(path))


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a file, gzipped or not, or of standard input for `-`."""
    if str(path) == "-":
        return _unpack("<stdin>", _read_limited("<stdin>", sys.stdin.buffer))
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - starts without pathlib
            size = os.fstat(file.fileno()).st_size
            data = _read_limited(str(path), file, piece=max(_PIECE, size + 1))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise InputError(f"{visible(str(path))}: {reason or error}") from error
    return _unpack(str(path), data)


def decode(name: str, data: bytes) -> Source:
    """The text in `data`, gzipped or not; bytes that are not UTF-8 become surrogates."""
    return _as_text(name, _unpack(name, data))


def _as_text(name: str, data: bytes) -> Source:
    return Source(name, data.decode("utf-8", "surrogateescape"))


def _unpack(name: str, data: bytes) -> bytes:
    if not data.startswith(_GZIP_MAGIC):
        return data
    import gzip  # noqa: PLC0415 - most texts are not compressed
    import zlib  # noqa: PLC0415

    packed = io.BytesIO(data)
    try:
        return _read_limited(name, gzip.GzipFile(fileobj=packed), packed)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{visible(name)}: damaged gzip file: {error}") from error


def _read_limited(
    name: str, file: BinaryIO | GzipFile, packed: BinaryIO | None = None, piece: int = _PIECE
) -> bytes:
    """All of a file, rejected if it is too long or its compression ratio too high."""
    limit, pieces, size = max_input(), list[bytes](), 0
    while data := file.read(min(piece, limit + 1)):
        pieces.append(data)
        size += len(data)
        if size > limit:
            problem = f"more than {limit} bytes, the limit of inputs (--max-input, limited_to)"
            raise InputError(f"{visible(name)}: {problem}")
        if packed is not None and size > max(_PIECE * 64, _MAX_GROWTH * packed.tell()):
            problem = (
                f"unpacks to more than {_MAX_GROWTH} times its size; if that is correct, unpack it"
            )
            raise InputError(f"{visible(name)}: {problem}")
    return b"".join(pieces)


def encode(text: str) -> bytes:
    """The bytes from which a text was decoded."""
    return text.encode("utf-8", "surrogateescape")


def load(path_or_text: str | Path, *, module: str | None = None) -> Dump:
    """The dump in a file, in a folder, on standard input (`-`) or in a text.

    A string that is empty or contains a newline is text, any other a path. The other files of a
    dump are found by name, and so is the HLO text of its program, which `Dump.module` reads on
    demand. Of a folder's programs the largest is taken, or the one named (in part) by `module`. A
    file may also be an XLA proto (`.hlo.pb`), a profile (`.xplane.pb`), an entry of JAX's
    compilation cache or a serialized executable, and a folder a whole cache.
    """
    loaded = load_any(path_or_text, module=module)
    if not isinstance(loaded, HloModule):
        return loaded
    where = visible(loaded.source_name)
    if loaded.creation is not None:
        raise InputError(f"{where}: a program without a memory plan; `hlomem plan` makes one")
    raise InputError(
        f"{where}: this is an HLO module; the dump is the file *-buffer-assignment.txt next to it"
    )


def load_any(
    path_or_text: str | Path, *, module: str | None = None, as_program: bool = False
) -> Dump | HloModule:
    """The dump that `load` returns, or the HLO module; `as_program` ignores a plan."""
    if isinstance(path_or_text, str) and is_given_as_text(path_or_text):
        return _read_any(Source("<string>", path_or_text), None)
    path = None if str(path_or_text) == "-" else os.fspath(path_or_text)
    if path is not None and _is_folder(path):
        return _load_folder(path, module, as_program=as_program)
    name = "<stdin>" if path is None else path
    data = read_bytes(path_or_text)
    if _is_binary(data):
        from hlomem.api.protos import open_chosen, programs_in  # noqa: PLC0415 - not for texts

        programs = programs_in(data, name, max_input())
        return _with_whole(open_chosen(programs, module, name, as_program=as_program), name)
    if module is not None:
        raise CommandError(f"{visible(name)} is one text: `--module` chooses from several programs")
    return _read_any(_as_text(name, data), path)


def _is_folder(path: str | Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - which, unlike that of a Path, never raises


def is_given_as_text(path_or_text: str) -> bool:
    """Whether a string is the text of a dump or a module rather than a path to one."""
    return "\n" in path_or_text or not path_or_text


def _is_binary(data: bytes) -> bool:
    """Whether a file is binary; the beginning of a text is decisive even if it is damaged."""
    if data.lstrip(b"\xef\xbb\xbf\r\n").startswith(_TEXT_STARTS):
        return False
    from hlomem.proto.sniff import is_binary  # noqa: PLC0415 - not for texts

    return is_binary(data)


def _load_folder(name: str, module: str | None, *, as_program: bool) -> Dump | HloModule:
    """A text dump of a folder, or else one of the programs in its binary files."""
    from pathlib import Path  # noqa: PLC0415 - not for files

    from msgspec.structs import replace  # noqa: PLC0415

    from hlomem.api.folder import choose_module, list_modules  # noqa: PLC0415

    path = Path(name)
    if not list_modules(path) and (programs := list_programs_of(path)):
        from hlomem.api.protos import choose_program, open_chosen  # noqa: PLC0415 - not for texts

        opened = open_chosen(programs, module, name, as_program=as_program)
        return _with_whole(opened, choose_program(programs, module, name)[0].where)
    choice = choose_module(path, module, read_source)
    return replace(load_module(choice.module), chosen=choice.reason)


def list_programs_of(path: Path) -> list[ProtoProgram]:
    """The programs in a folder of protos or in a binary file; empty elsewhere."""
    from hlomem.api.protos import programs_in, programs_in_folder  # noqa: PLC0415 - not for texts

    if _is_folder(path):
        return programs_in_folder(path, read_bytes, max_input())
    data = read_bytes(path)
    return programs_in(data, str(path), max_input()) if _is_binary(data) else []


def _read_any(source: Source, name: str | None) -> Dump | HloModule:
    """A module, or the dump of a text and its companion files."""
    if is_module_text(source.text):
        return _parse_once(source, lambda: hlo.parse(source.text, source.name))
    if "BufferAssignment:" not in source.text and _OOM.search(source.text):
        problem = "a log with an out-of-memory message, not a dump"
        hint = "`hlomem oom`, in Python `hlomem.read_oom`, explains it"
        raise InputError(f"{visible(source.name)}: this is {problem}; {hint}")
    if name is None:
        return _parse_dump(source.name, [source])
    from pathlib import Path  # noqa: PLC0415 - not for modules

    from hlomem.api.folder import files_of  # noqa: PLC0415

    path = Path(name)
    files = files_of(path)
    sources = [source if str(file) == source.name else read_source(file) for file in files]
    return _with_program(_parse_dump(source.name, sources), path)


def _parse_dump(name: str, sources: Sequence[Source]) -> Dump:
    from hlomem.dump.dump import join_parts  # noqa: PLC0415 - not for modules
    from hlomem.dump.parts import parse_part  # noqa: PLC0415

    parts = [_parse_once(source, partial(parse_part, source)) for source in sources]
    # An equal text read before has the name of another file.
    return join_parts(
        name, [part._replace(name=source.name) for part, source in zip(parts, sources, strict=True)]
    )


def _parse_once(source: Source, parse: Callable[[], _Parsed]) -> _Parsed:
    """A text, parsed; equal texts share the result within `reading_once`."""
    seen = _seen.get()
    if seen is None:
        return parse()
    alike = seen.setdefault(len(source.text), [])
    known: _Parsed | None = next((it for text, it in alike if text == source.text), None)
    if known is None:
        known = parse()
        alike.append((source.text, known))
    return known


def is_module_text(text: str) -> bool:
    return _MODULE_START.match(text) is not None


def load_module(module: Module) -> Dump:
    dump = _parse_dump(module.name, [read_source(path) for path in module.files])
    return _with_program(dump, module.files[0])


def _with_program(dump: Dump, path: Path) -> Dump:
    from msgspec.structs import replace  # noqa: PLC0415 - not for modules

    from hlomem.api.folder import codegen_beside, program_beside, whole_beside  # noqa: PLC0415

    program, whole = program_beside(path), whole_beside(path)
    if whole is not None:
        dump = replace(dump, open_whole=partial(load_program, whole))
    generated, *about = codegen_beside(path)
    if generated is not None:
        dump = replace(dump, open_codegen=partial(_load_codegen, generated, about))
    return dump if program is None else replace(dump, open_module=partial(load_program, program))


def _load_codegen(program: Path, about: Sequence[Path | None]) -> CodegenTexts:
    from hlomem.dump.codegen import CodegenTexts  # noqa: PLC0415 - few dumps have it

    texts = ("" if path is None else read_source(path).text for path in about)
    return CodegenTexts(read_source(program), *texts)


def hold_whole(dump: Dump) -> Dump:
    """A dump that has read the program before partitioning, and parses it on demand."""
    if not isinstance(dump.open_whole, partial):
        return dump
    from msgspec.structs import replace  # noqa: PLC0415 - not for modules

    [path] = dump.open_whole.args
    data = read_bytes(path)
    if _is_binary(data):
        program = load_program(path)
        return replace(dump, open_whole=lambda: program)
    source = _as_text(str(path), data)
    return replace(dump, open_whole=lambda: hlo.parse(source.text, source.name))


def _with_whole(opened: Dump | HloModule, name: str) -> Dump | HloModule:
    """The dump in a proto with the program that lies next to it, before it was partitioned."""
    if isinstance(opened, HloModule):
        return opened
    from pathlib import Path  # noqa: PLC0415 - not for texts

    from msgspec.structs import replace  # noqa: PLC0415

    from hlomem.api.folder import whole_beside  # noqa: PLC0415

    whole = whole_beside(Path(name))
    return opened if whole is None else replace(opened, open_whole=partial(load_program, whole))


def find_program(path: str | Path, module: str | None = None) -> HloModule | None:
    return load(path, module=module).module


def load_program(path: str | Path) -> HloModule:
    loaded = load_any(path, as_program=True)
    if not isinstance(loaded, HloModule):
        raise InputError(f"{visible(str(path))}: this is a dump; an HLO module is needed here")
    return loaded
