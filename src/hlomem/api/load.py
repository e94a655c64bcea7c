"""Dumps as users have them: a file, standard input, gzip, one file of four, a folder of many.

Everything is read as bytes and decoded here: bytes that are not UTF-8 are kept as surrogates, so
that nothing is lost on the way back. The other files of a dump, and the HLO text of its program,
are found beside it (`hlomem.api.folder`).
"""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import zlib
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace

from hlomem import hlo
from hlomem.api.folder import answers_yes, choose_module, files_of, program_beside
from hlomem.base.errors import CommandError, InputError
from hlomem.base.source import Source, visible
from hlomem.dump.dump import Dump, join_parts
from hlomem.dump.parts import parse_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.api.folder import Module
    from hlomem.hlo.ir import HloModule

_GZIP_MAGIC = b"\x1f\x8b"
_PIECE = 1 << 20
_SNIFFED = 4096
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1f\udc80-\udcff]")
_MAX_ODD = 0.05
"""The share of characters that no text has, up to which a file is a damaged text."""
_MOST_GROWTH = 100
"""How much larger than packed a text may be; dumps are 5 to 25 times as large."""
MOST_BYTES = 4 << 30
_most_bytes = ContextVar("most_bytes", default=MOST_BYTES)
"""What every input is held to; the command line sets it once for all that is read."""
_OOM = re.compile(r"RESOURCE_EXHAUSTED|bfc_allocator\.cc")
_MODULE_START = re.compile(r"\ufeff?\s*+(?://[^\n]*+\n\s*+)*+HloModule\b")


@contextmanager
def limited_to(size: int) -> Iterator[None]:
    """Inputs of more than `size` bytes, unpacked, are refused meanwhile."""
    before = _most_bytes.set(size)
    try:
        yield
    finally:
        _most_bytes.reset(before)


def read_source(path: str | Path) -> Source:
    """The text of a file, gzipped or not, or of standard input for `-`."""
    if str(path) == "-":
        return decode("<stdin>", _read_limited("<stdin>", sys.stdin.buffer))
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = _read_limited(str(path), file, piece=max(_PIECE, size + 1))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise InputError(f"{visible(str(path))}: {reason or error}") from error
    return decode(str(path), data)


def decode(name: str, data: bytes) -> Source:
    """The text in `data`; bytes that are not UTF-8 stay, as surrogates."""
    if data.startswith(_GZIP_MAGIC):
        packed = io.BytesIO(data)
        try:
            data = _read_limited(name, gzip.GzipFile(fileobj=packed), packed)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{visible(name)}: damaged gzip file: {error}") from error
    return Source(name, data.decode("utf-8", "surrogateescape"))


def _read_limited(
    name: str,
    file: BinaryIO | gzip.GzipFile,
    packed: BinaryIO | None = None,
    piece: int = _PIECE,
) -> bytes:
    """All of a file, in pieces; refused when it is too long, or grows too much by unpacking."""
    limit, pieces, size = _most_bytes.get(), list[bytes](), 0
    while data := file.read(min(piece, limit + 1)):
        pieces.append(data)
        size += len(data)
        if size > limit:
            problem = f"more than {limit} bytes, the limit of inputs (--max-input, limited_to)"
            raise InputError(f"{visible(name)}: {problem}")
        if packed is not None and size > max(_PIECE * 64, _MOST_GROWTH * packed.tell()):
            problem = (
                f"unpacks to more than {_MOST_GROWTH} times its size; if that is right, unpack it"
            )
            raise InputError(f"{visible(name)}: {problem}")
    return b"".join(pieces)


def encode(text: str) -> bytes:
    """The bytes a text was decoded from."""
    return text.encode("utf-8", "surrogateescape")


def load(path_or_text: str | Path, *, module: str | None = None) -> Dump:
    """The dump in a file, in a folder, on standard input (`-`) or in a text.

    A string that is empty or has a line end is a text, any other a path. The other files of a
    dump that XLA wrote in four are found by name, and so is the HLO text of its program, which
    `Dump.module` reads when it is asked for. Of a folder's programs the largest is taken, or the
    one that `module` names; a part of its name will do.
    """
    loaded = load_any(path_or_text, module=module)
    if isinstance(loaded, Dump):
        return loaded
    where = visible(loaded.source.name)
    raise InputError(
        f"{where}: this is an HLO module; the dump is the file *-buffer-assignment.txt beside it"
    )


def load_any(path_or_text: str | Path, *, module: str | None = None) -> Dump | HloModule:
    """What `load` gives, or the HLO module if the file or text is one."""
    if isinstance(path_or_text, str) and is_given_as_text(path_or_text):
        return _read_any(Source("<string>", path_or_text))
    if str(path_or_text) == "-":
        return _read_any(read_source("-"))
    path = Path(path_or_text)
    if answers_yes(path.is_dir):
        choice = choose_module(path, module, read_source)
        return replace(load_module(choice.module), chosen=choice.reason)
    if module is not None:
        problem = "a module is chosen from a folder, and this is a file"
        raise CommandError(f"{visible(str(path))}: {problem}")
    loaded = _read_any(read_source(path), files_of(path))
    return _with_program(loaded, path) if isinstance(loaded, Dump) else loaded


def is_given_as_text(path_or_text: str) -> bool:
    """Whether a string is the text of a dump or a module rather than a path to one."""
    return "\n" in path_or_text or not path_or_text


def _read_any(source: Source, files: Sequence[Path] = ()) -> Dump | HloModule:
    """A module, or the dump that `files` make up, one of which is `source`."""
    if is_module_text(source.text):
        return hlo.parse(source.text, source.name)
    if _is_binary(source):
        raise InputError(_is_no_text(source.name))
    if "BufferAssignment:" not in source.text and _OOM.search(source.text):
        problem = "a log with an out-of-memory message, and no dump"
        hint = "`hlomem oom`, in Python `hlomem.read_oom`, explains it"
        raise InputError(f"{visible(source.name)}: this is {problem}; {hint}")
    sources = [source if str(path) == source.name else read_source(path) for path in files]
    return join_parts(source.name, [parse_part(each) for each in sources or [source]])


def _is_binary(source: Source) -> bool:
    """Whether a file is no text at all, rather than a text with a few bytes damaged."""
    start = source.text[:_SNIFFED]
    odd = len(_NO_TEXT.findall(start))
    return source.name.endswith(".pb") or odd > _MAX_ODD * len(start)


def _is_no_text(name: str) -> str:
    """Why a file that is no text is refused."""
    what = "this is a proto (.pb)" if name.endswith(".pb") else "this is no text"
    return (
        f"{visible(name)}: {what}, and hlomem reads text\n"
        "  --xla_dump_hlo_as_text, beside --xla_dump_to=DIR in XLA_FLAGS, writes it"
    )


def is_module_text(text: str) -> bool:
    """Whether a text is an HLO module's rather than a dump's."""
    return _MODULE_START.match(text) is not None


def load_module(module: Module) -> Dump:
    """The dump in the files of one module."""
    parts = [parse_part(read_source(path)) for path in module.files]
    return _with_program(join_parts(module.name, parts), module.files[0])


def _with_program(dump: Dump, path: Path) -> Dump:
    """A dump that knows the program whose text lies beside its file."""
    program = program_beside(path)
    return dump if program is None else replace(dump, open_module=partial(load_program, program))


def load_program(path: str | Path) -> HloModule:
    """The HLO module in a file."""
    loaded = load_any(path)
    if isinstance(loaded, Dump):
        raise InputError(f"{visible(str(path))}: this is a dump; the HLO module is wanted here")
    return loaded
