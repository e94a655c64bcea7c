"""Options of commands that take a factory (docs/jax.md): it, its settings, a target."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import click

from hlomem.base.errors import CommandError
from hlomem.base.source import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME = re.compile(r"[A-Za-z_]\w*")

FACTORY = click.argument("factory", metavar="MODULE:FACTORY")
SET = click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the FACTORY."
)
"""Of commands that take a dump as well."""
SETTINGS = (
    click.option(
        "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the factory."
    ),
    click.option(
        "--import",
        "imports",
        multiple=True,
        metavar="MODULE",
        help="Import this first; hlomem.jax.auto enables the pass.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=1800.0,
        metavar="SECONDS",
        help="Abort a compile after this time.  [default: 1800]",
    ),
)
FACTORY_OPTIONS = (
    FACTORY,
    click.option(
        "--target",
        default="cpu",
        metavar="TARGET",
        help="The machine to compile for: tpu-v5e:2x2, cuda-h100:8, cpu, …  [default: cpu]",
    ),
    *SETTINGS,
)


def parse_settings(words: Sequence[str]) -> dict[str, Any]:
    """`batch=8`, `remat=None`, `size=tiny` as Python values, or else as text."""
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise CommandError(f"`{visible(word)}` is not NAME=VALUE, as in batch=8")
        if name in settings:
            raise CommandError(f"`{visible(name)}` is set twice")
        settings[name] = parse_value(value)
    return settings


def parse_values(words: Sequence[str]) -> dict[str, list[Any]]:
    """`remat=none,full`: the values of each name."""
    found: dict[str, list[Any]] = {}
    for word in words:
        name, _, values = word.partition("=")
        if not name.isidentifier() or name in found or not values:
            raise CommandError(f"`{visible(word)}` makes no rows: give NAME=A,B once for each name")
        found[name] = [parse_value(value) for value in values.split(",")]
    return found


def parse_value(text: str) -> Any:
    """A Python literal, or else the text itself."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return list(value)
    raise CommandError(f"`{visible(text)}` is not a valid setting: give a number or a word")
