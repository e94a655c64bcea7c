"""Submodules imported on first use: `__getattr__ = find_submodules(__name__)`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


def find_submodules(package: str) -> Callable[[str], ModuleType]:
    """A `__getattr__` for a package."""

    def find(name: str) -> ModuleType:
        whole = f"{package}.{name}"
        if not name.startswith("_"):
            try:
                return import_module(whole)
            except ModuleNotFoundError as error:
                if error.name != whole:
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
