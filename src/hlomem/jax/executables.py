"""The contents of a Compiled of JAX, without a dump: its program with XLA's plan.

`runtime_executable` is the one way in that JAX does not promise; it is used here alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.api.protos import open_chosen, programs_in
from hlomem.base.errors import InputError
from hlomem.dump.dump import Dump

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloModule

_MAX_BYTES = 4 << 30


def dump_of(compiled: Any) -> Dump | None:
    """The plan in an executable; None where it does not give itself away."""
    data = _serialized(compiled)
    if not data:
        return None
    try:
        opened: Dump | HloModule = open_chosen(
            programs_in(data, "the executable", _MAX_BYTES), None, "", as_program=False
        )
    except InputError:  # another form than those known: its text is still there
        return None
    return opened if isinstance(opened, Dump) else None


def _serialized(compiled: Any) -> bytes:
    """An executable's bytes; none where its runtime does not serialize."""
    try:
        return bytes(compiled.runtime_executable().serialize())
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return b""
