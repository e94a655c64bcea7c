"""The errors hlomem raises on purpose; anything else that escapes is a bug of ours.

Each carries the exit code the command line turns it into. A message says what is wrong, where,
and what the reader can do; places are rendered by `hlomem.base.source`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.source import elide

if TYPE_CHECKING:
    from hlomem.base.source import Source, Span

EXIT_OK = 0
EXIT_FINDING = 1
EXIT_USAGE = 2
EXIT_UNREADABLE = 3
EXIT_INTERNAL = 4


class HlomemError(Exception):
    """Base of every error that is an answer to the user, not a defect."""

    exit_code = EXIT_UNREADABLE


class ParseError(HlomemError):
    """Text that is not what it should be: `str()` shows place, line and a caret."""

    def __init__(self, source: Source, span: Span, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.source = source
        self.span = span
        self.problem = elide(problem)
        self.hint = elide(hint)

    @property
    def line(self) -> int:
        """The line of the problem, counted from 1."""
        return self.source.place(self.span.start).line

    @property
    def column(self) -> int:
        """The column of the problem, counted from 1."""
        return self.source.place(self.span.start).column

    def __str__(self) -> str:
        return self.source.render(self.span, self.problem, self.hint)


class UnsupportedError(ParseError):
    """Text we understand as text, holding a construct hlomem does not model."""


class InputError(HlomemError):
    """Input that cannot be read at all: no such file, not text, not a dump."""


class CommandError(HlomemError):
    """Wrong use of a command or of an argument."""

    exit_code = EXIT_USAGE


class UnknownNameError(CommandError, KeyError):
    """A name of which there is none, or more than one: says what there is."""

    __str__ = Exception.__str__  # a KeyError's would put the message in quotes


class UnknownChoiceError(CommandError, ValueError):
    """An argument that is none of its choices: names them."""


class EditError(CommandError):
    """A program that cannot be built, or a change that a program cannot take: says why."""

    def __init__(self, problem: str) -> None:
        super().__init__(elide(problem))
