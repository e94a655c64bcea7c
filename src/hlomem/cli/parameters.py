"""The parameters of a command, declared without click.

Plain words (options with a value each, flags, arguments) are read here, all else by click. Commands
that are called in loops do without click: with it the plan of a small module (10 kB,
jaxlib-0.12.0.1/cpu/nested_while) executes 389 million instructions, not 346 (+12.6 %), and takes 87
ms of CPU time, not 80. A parameter is also a decorator for commands of click.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import click

    Run = Callable[..., int]


class Parameter:
    """An argument, or an option if its names begin with a dash."""

    __slots__ = ("choices", "convert", "default", "help", "is_flag", "keyword", "metavar", "names")

    def __init__(
        self,
        *names: str,
        metavar: str | None = None,
        help: str | None = None,  # noqa: A002 - as click calls it
        is_flag: bool = False,
        default: str | None = None,
        choices: Sequence[str] = (),
        convert: Callable[[str], Any] = str,
    ) -> None:
        self.names = names
        self.metavar = metavar
        self.help = help
        self.is_flag = is_flag
        self.default = default
        self.choices = choices
        self.convert = convert
        plain = [name for name in names if not name.startswith("-")]
        self.keyword = (plain or [max(names, key=len)])[0].lstrip("-").replace("-", "_")

    @property
    def is_option(self) -> bool:
        """Whether it has a name on the command line."""
        return self.names[0].startswith("-")

    @property
    def if_left_out(self) -> str | bool | None:
        """Its value where the words do not give one."""
        return False if self.is_flag else self.default

    def takes(self, value: str) -> bool:
        """Whether a word is a value for it, and neither an option nor a choice there is not."""
        if value != "-" and (not value or value.startswith("-")):
            return False
        return not self.choices or value in self.choices

    def __call__(self, run: Run) -> Run:
        import click  # noqa: PLC0415 - takes as long as planning a small module

        if not self.is_option:
            return click.argument(*self.names, metavar=self.metavar)(run)
        if self.is_flag:
            return click.option(*self.names, is_flag=True, help=self.help)(run)
        return click.option(
            *self.names,
            type=click.Choice(self.choices) if self.choices else self.convert,
            default=self.default,
            show_default=bool(self.choices and self.default),
            metavar=self.metavar,
            help=self.help,
        )(run)


argument = option = Parameter
"""A word that must be there, and a parameter with a name, whose help shows a default choice."""


class Command:
    """A command that can be called without click."""

    __slots__ = ("name", "parameters", "run")

    def __init__(self, name: str, parameters: Sequence[Parameter], run: Run) -> None:
        self.name = name
        self.parameters = parameters
        self.run = run

    def to_click(self) -> click.Command:
        import click  # noqa: PLC0415 - as above

        run = self.run
        for parameter in reversed(self.parameters):
            run = parameter(run)
        return click.command(self.name)(run)

    def read(self, words: Sequence[str]) -> dict[str, Any] | None:
        """The meaning of plain words, by keyword; None for words that click had better read."""
        options = {
            name: parameter
            for parameter in self.parameters
            if parameter.is_option
            for name in parameter.names
            if name.startswith("-")
        }
        arguments = [parameter for parameter in self.parameters if not parameter.is_option]
        values: dict[str, Any] = {}
        rest = iter(words)
        for word in rest:
            name, _, value = word.partition("=")
            parameter = options.get(word) or options.get(name if name.startswith("--") else "")
            if parameter is None:
                if not arguments:
                    return None
                parameter, value = arguments.pop(0), word
            elif not parameter.is_flag and word == name:
                value = next(rest, "")
            is_right = word == name if parameter.is_flag else parameter.takes(value)
            if not is_right or parameter.keyword in values:
                return None
            values[parameter.keyword] = parameter.is_flag or parameter.convert(value)
        if arguments:
            return None
        missing = {parameter.keyword: parameter.if_left_out for parameter in self.parameters}
        return missing | values


def declare(name: str, *parameters: Parameter) -> Callable[[Run], Command]:
    """Makes a function a command; parameters are in the order of its help."""
    return lambda run: Command(name, parameters, run)
