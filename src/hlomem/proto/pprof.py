"""Device memory profiles of JAX (`jax.profiler.save_device_memory_profile`), read without Go.

In: the bytes of a profile of `google/pprof` (proto/profile.proto), gzipped or not. Out: what lived
on the devices when it was taken, a `Holding` for each place in the code. Sizes are those the arrays
have, not the chunks an allocator gave them.
"""

from __future__ import annotations

import gzip
import io
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from hlomem.base.errors import InputError
from hlomem.proto.schema import parse_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GZIP_MAGIC = b"\x1f\x8b"
_MAX_BYTES = 1 << 30


class Frame(NamedTuple):
    """A call on a stack."""

    function: str
    file: str
    line: int


class Holding(Struct, frozen=True, kw_only=True):
    """Arrays, or executables, that were made at one place in the code."""

    count: int
    size: int
    """Bytes of all."""
    kind: str
    """`buffer` or `executable`; empty where the profile does not say."""
    device: str
    stack: tuple[Frame, ...]
    """The innermost call first."""


def read_pprof(data: bytes, name: str) -> list[Holding]:
    """Everything a device memory profile lists; `InputError` if it is not one."""
    try:
        profile = parse_message("Pprof", _unpack(data))
        return list(_holdings(profile))
    except (InputError, LookupError, ValueError) as error:
        raise InputError(
            f"{name}: no device memory profile, or it is cut off or damaged\n"
            '  jax.profiler.save_device_memory_profile("memory.prof") writes one'
        ) from error


def _unpack(data: bytes) -> bytes:
    if not data.startswith(_GZIP_MAGIC):
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(_MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"damaged gzip data: {error}") from error
    if len(unpacked) > _MAX_BYTES:
        raise InputError("unpacks to more than a memory profile has")
    return unpacked


def _holdings(profile: Any) -> Iterator[Holding]:
    texts = [text.decode("utf-8", "replace") for text in profile.string_table]
    count, size = _columns(profile, texts)
    stacks = _Stacks(profile, texts)
    for sample in profile.sample:
        labels = {texts[label.key]: texts[label.str] for label in sample.label}
        yield Holding(
            count=sample.value[count],
            size=sample.value[size],
            kind=labels.get("kind", ""),
            device=labels.get("device", ""),
            stack=stacks.of(sample.location_id),
        )


def _columns(profile: Any, texts: Sequence[str]) -> tuple[int, int]:
    """The numbers of the columns of counts and of bytes."""
    names = [texts[kind.type] for kind in profile.sample_type]
    return names.index("allocations"), names.index("space")


class _Stacks:
    """Stacks of a profile, by the numbers of their locations."""

    def __init__(self, profile: Any, texts: Sequence[str]) -> None:
        functions = {function.id: function for function in profile.function}
        self._frames = {
            location.id: tuple(
                Frame(
                    texts[functions[line.function_id].name],
                    texts[functions[line.function_id].filename],
                    line.line,
                )
                for line in location.line
            )
            for location in profile.location
        }

    def of(self, locations: Sequence[int]) -> tuple[Frame, ...]:
        """The frames of a stack."""
        return tuple(frame for number in locations for frame in self._frames[number])
