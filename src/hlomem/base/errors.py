"""Errors raised on purpose, each with an exit code: what is wrong, where, and what to do."""

from __future__ import annotations

from hlomem.base.source import Source, Span, elide

EXIT_OK = 0
EXIT_FINDING = 1
EXIT_USAGE = 2
EXIT_UNREADABLE = 3
EXIT_INTERNAL = 4


class HlomemError(Exception):
    """Base of all errors meant for the user."""

    exit_code = EXIT_UNREADABLE


class ParseError(HlomemError):
    """Malformed text; `str()` shows position, line and a caret."""

    def __init__(self, source: Source, span: Span, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.source = source
        self.span = span
        self.problem = elide(problem)
        self.hint = elide(hint)

    @property
    def line(self) -> int:
        """The line of the problem, counted from 1."""
        return self.source.position(self.span.start).line

    @property
    def column(self) -> int:
        """The column of the problem, counted from 1."""
        return self.source.position(self.span.start).column

    def __str__(self) -> str:
        return self.source.render(self.span, self.problem, self.hint)


class UnsupportedError(ParseError):
    """Well-formed text with a construct that hlomem does not model."""


class InputError(HlomemError):
    """Unreadable input: no such file, not text, not a dump."""


class OtherKindError(InputError):
    """Input of another kind than was looked for, as far as can be told."""


class CommandError(HlomemError):
    """A wrong command or argument."""

    exit_code = EXIT_USAGE


class UnknownNameError(CommandError, KeyError):
    """An unknown or ambiguous name; the message lists the known ones."""

    __str__ = Exception.__str__  # KeyError's would quote the message


class UnknownChoiceError(CommandError, ValueError):
    """An argument outside its choices; the message lists them."""


class EditError(CommandError):
    """A program that cannot be built, or an edit that it does not permit."""

    def __init__(self, problem: str) -> None:
        super().__init__(elide(problem))
