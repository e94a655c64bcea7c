"""From an instruction's metadata to the line of user code: the innermost outside frameworks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.patterns import lazy_pattern
from hlomem.hlo.text.attributes import Metadata, find_metadata, read_metadata

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction, HloModule

_ONLY_NAME = lazy_pattern(r'metadata=\{op_name="([^"\\]*+)"\}')
"""The metadata of programs that were not traced by JAX, or lost their lines."""
_PARAMETERS = lazy_pattern(r"\[\w+=.*\]$")
"""Appended as in `conv[window_strides=(1,) …]`."""
_INSTALLED = lazy_pattern(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|^<frozen ")
_FRAMEWORK = lazy_pattern(
    r"[/\\](?:jax|jaxlib|flax|optax|haiku|equinox|chex|orbax|praxis|paxml|t5x|keras|torch"
    r"|torch_xla|tensorflow|numpyro|penzai|jaxtyping)[/\\]"
    r"|[/\\]lib[/\\]python\d[^/\\]*[/\\](?!(?:site|dist)-packages)|^<frozen "
    r"|^<string>$"
)
_LAUNCHER = lazy_pattern(r"^<string>$|[/\\]hlomem[/\\]stacks[/\\]")
"""`python -c`, and our factories of what others wrote."""


def is_installed(file: str) -> bool:
    """Whether a file is of Python or an installed library."""
    return _INSTALLED.search(file) is not None


class Frame(NamedTuple):
    file: str
    line: int
    """0 if only the file is known."""
    function: str = ""

    @property
    def location(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Origin(NamedTuple):
    op_name: str | None
    frames: tuple[Frame, ...]
    """The call stack, innermost first."""
    line: str | None
    told_by: str | None = None


class Lines:
    def __init__(self, module: HloModule | None) -> None:
        self._tables = module.stack_frame_tables if module else None
        self._frames: dict[int, tuple[Frame, ...]] = {}
        self._origins: dict[str, Origin] = {}

    def origin(self, instruction: str) -> Origin:
        """The origin of an instruction's text; equal metadata share it."""
        start = find_metadata(instruction)
        text = instruction[start:] if start >= 0 else ""
        known = self._origins.get(text)
        if known is None:
            only_name = _ONLY_NAME.match(text)
            known = self._origins[text] = (
                Origin(only_name[1] or None, (), None)
                if only_name
                else self.origin_of(read_metadata(text))
            )
        return known

    def origin_in(self, instruction: HloInstruction) -> Origin:
        text = instruction.attributes.get("metadata", "")
        known = self._origins.get(text)
        if known is None:
            known = self._origins[text] = self.origin_of(instruction.metadata)
        return known

    def origin_of(self, metadata: Metadata) -> Origin:
        frames = self._find_frames(metadata)
        frame = users_frame(frames)
        return Origin(metadata.op_name or None, frames, frame.location if frame else None)

    def _find_frames(self, metadata: Metadata) -> tuple[Frame, ...]:
        if metadata.stack_frame_id and (frames := self._frames_of_id(metadata.stack_frame_id)):
            return frames
        file = metadata.source_file
        return (Frame(file, metadata.source_line),) if file else ()

    def _frames_of_id(self, number: int) -> tuple[Frame, ...]:
        if self._tables is not None and number not in self._frames:
            self._frames[number] = tuple(
                Frame(frame.file_name, frame.line, frame.function_name)
                for frame in self._tables.frames(number)
            )
        return self._frames.get(number, ())


def bare_op_name(name: str) -> str:
    """An operation's name without the parameters that JAX up to 0.4.31 appended."""
    return _PARAMETERS.sub("", name)


def users_frame(frames: tuple[Frame, ...]) -> Frame | None:
    """The frame to show: in user code, else outside installed packages, else the first.

    Of a program that an installed package makes, that is the package's, not its launcher's.
    """
    own = [frame for frame in frames if not _FRAMEWORK.search(frame.file)]
    outside = [frame for frame in frames if not is_installed(frame.file)]
    named = [frame for frame in outside if not _LAUNCHER.search(frame.file)]
    users = [frame for frame in named if not _FRAMEWORK.search(frame.file)]
    return (*users, *named, *own, *outside, *frames, None)[0]
