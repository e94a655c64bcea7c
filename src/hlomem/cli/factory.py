"""Shared by `compile` and `fit`: a factory, its settings, a target.

A factory is described in docs/jax.md; `hlomem.jax.compile.factories` calls it, in a process of its
own.
"""

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

FACTORY_OPTIONS = (
    click.argument("factory", metavar="MODULE:FACTORY"),
    click.option(
        "--target",
        default="cpu",
        metavar="TARGET",
        help="The machine to compile for: tpu-v5e:2x2, cuda-h100:8, cpu, …  [default: cpu]",
    ),
    click.option(
        "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the factory."
    ),
    click.option(
        "--import",
        "imports",
        multiple=True,
        metavar="MODULE",
        help="Import this first; hlomem.jax.auto plans with the pass on.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=1800.0,
        metavar="SECONDS",
        help="Give up a compile after this long.  [default: 1800]",
    ),
)


def parse_settings(words: Sequence[str]) -> dict[str, Any]:
    """`batch=8`, `remat=None`, `size=tiny` → values of Python, or the text where it is none."""
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise CommandError(f"`{visible(word)}` is no setting: give NAME=VALUE, as in batch=8")
        if name in settings:
            raise CommandError(f"`{visible(name)}` is set twice")
        settings[name] = parse_value(value)
    return settings


def parse_value(text: str) -> Any:
    """A number, True, None or the like, or else the text itself."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return list(value)
    raise CommandError(f"`{visible(text)}` is no value of a setting: give a number or a word")
