"""From an instruction's metadata to the line of the program its author wrote.

In: the text of an instruction and, where at hand, the module's stack frame tables. Out: the frames,
innermost first, and the one to show: XLA names whatever called the primitive, which is often a
line of flax or optax, so the innermost frame outside the frameworks below is taken, and rather one
of a program than of an installed library.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.attributes import unescape

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloModule

_METADATA = "metadata={"
_OP_NAME = re.compile(r'\bop_name="((?:[^"\\]|\\.)*)"')
_SOURCE = re.compile(r'\bsource_file="((?:[^"\\]|\\.)*)"(?: source_line=(\d+))?')
_PARAMETERS = re.compile(r"\[\w+=.*\]$")
"""As in `conv[window_strides=(1,) …]`."""
_FRAME_ID = re.compile(r"\bstack_frame_id=(\d+)")
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|^<frozen ")
_FRAMEWORK = re.compile(
    r"[/\\](?:jax|jaxlib|flax|optax|haiku|equinox|chex|orbax|praxis|paxml|t5x|keras|torch"
    r"|torch_xla|tensorflow|numpyro|penzai|jaxtyping)[/\\]"
    r"|[/\\]lib[/\\]python\d[^/\\]*[/\\](?!(?:site|dist)-packages)|^<frozen "
)


class Frame(NamedTuple):
    """One call on the way to an operation."""

    file: str
    line: int
    """0 where only the file is known."""
    function: str = ""

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}" if self.line else self.file


class Lines:
    """Where instructions come from, by their metadata."""

    def __init__(self, module: HloModule | None) -> None:
        self._tables = module.stack_frame_tables if module else None
        self._cache: dict[int, tuple[Frame, ...]] = {}

    def frames(self, instruction: str) -> tuple[Frame, ...]:
        """The calls that led to an instruction, innermost first; empty where nothing is said."""
        start = instruction.find(_METADATA)
        if start < 0:
            return ()
        number = _FRAME_ID.search(instruction, start)
        if number is not None and (frames := self._frames_of_id(int(number[1]))):
            return frames
        place = _SOURCE.search(instruction, start)
        return (Frame(unescape(place[1]), int(place[2] or 0)),) if place else ()

    def line(self, instruction: str) -> str | None:
        """`file:line` of the code its author wrote; None where nothing is said."""
        frame = users_frame(self.frames(instruction))
        return frame.place if frame else None

    def _frames_of_id(self, number: int) -> tuple[Frame, ...]:
        if self._tables is not None and number not in self._cache:
            self._cache[number] = tuple(
                Frame(each.file_name, each.line, each.function_name)
                for each in self._tables.frames(number)
            )
        return self._cache.get(number, ())


def op_name(instruction: str) -> str | None:
    """The operation's name with its scopes, as JAX gave it; None where nothing is said."""
    start = instruction.find(_METADATA)
    found = _OP_NAME.search(instruction, start) if start >= 0 else None
    return unescape(found[1]) if found and found[1] else None


def bare_op_name(name: str) -> str:
    """An operation's name without the parameters JAX up to 0.4.31 appended to it."""
    return _PARAMETERS.sub("", name)


def users_frame(frames: tuple[Frame, ...]) -> Frame | None:
    """The frame to show."""
    own = [frame for frame in frames if not _FRAMEWORK.search(frame.file)]
    for candidates in (own, frames):
        for frame in candidates:
            if not _INSTALLED.search(frame.file):
                return frame
    return (*own, *frames, None)[0]
