"""The packages of `hlomem[fleet]`, imported when they are needed, missing ones with a way out."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hlomem.base.errors import CommandError


def require(package: str, what_for: str) -> Any:
    """A package of the extra; an error that says how to get it where it is not installed."""
    try:
        return import_module(package)
    except ImportError as error:
        name = package.partition(".")[0]
        problem = f"{what_for} needs {name}, which is not installed"
        raise CommandError(f"{problem}: pip install 'hlomem[fleet]'") from error
