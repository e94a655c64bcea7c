"""Answers of the pass, kept next to JAX's compilation cache, where that is on a local disk.

The key is made of the module, without the number it has in a process, and of the pass, its options,
versions and flags. A file that cannot be read is as if it were not there.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import msgspec

from hlomem import __version__
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import HlomemError
from hlomem.jax.pass_.log import Outcome  # noqa: TC001 - msgspec reads it
from hlomem.jax.target_kinds import version_of
from hlomem.proto.edit import with_number

FOLDER = "hlomem-pass"
"""The folder's name in that of JAX's cache."""
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
_PACKAGES = ("jaxlib", "libtpu")
_QUICK = 1


class Answer(NamedTuple):
    proto: bytes | None
    """The module to compile instead; None to leave it as it is."""
    outcome: Outcome


class AnswerStore:
    def __init__(self, signature: str) -> None:
        """`signature` says all that answers depend on and that the process can change."""
        versions = [f"{name} {version_of(name)}" for name in _PACKAGES]
        flags = [os.environ.get(name, "") for name in _FLAGS]
        self._signature = "\n".join([__version__, signature, *versions, *flags]).encode()

    def find(self, proto: bytes) -> Answer | None:
        folder = _folder()
        if folder is None:
            return None
        number, key = self._key(proto)
        try:
            data = zlib.decompress((folder / key).read_bytes())
            answer = msgspec.msgpack.decode(data, type=Answer)
        except (OSError, zlib.error, msgspec.DecodeError):
            return None
        proto_here = None if answer.proto is None else with_number(answer.proto, number)[1]
        notes = filter(None, (answer.outcome.reason, "known from JAX's cache"))
        outcome = answer.outcome._replace(seconds=0.0, reason="; ".join(notes))
        return Answer(proto_here, outcome)

    def keep(self, proto: bytes, answer: Answer) -> None:
        """Keep an answer, unless it says that something went wrong, or cannot be written."""
        folder = _folder()
        if folder is None or answer.outcome.kind not in {"improved", "kept"}:
            return
        _, key = self._key(proto)
        data = zlib.compress(msgspec.msgpack.encode(answer), _QUICK)
        with suppress(HlomemError, OSError):  # a full disk must not end the user's compile
            write_files(folder, {key: [data]}, force=True)

    def _key(self, proto: bytes) -> tuple[int, str]:
        """A module's number in this process, and the name of its file."""
        number, cleared = with_number(proto, 0)
        return number, hashlib.sha256(self._signature + b"\0" + cleared).hexdigest()


def _folder() -> Path | None:
    """The folder to keep answers in; None where JAX has no cache, or one that is not a folder."""
    config = import_module("jax").config
    place = config.jax_compilation_cache_dir
    if not place or not config.jax_enable_compilation_cache or "://" in str(place):
        return None
    return Path(place) / FOLDER
