"""The memory of many programs: scanned into a store of tables, queried in SQL.

    hlomem.fleet.scan(["dumps/", "s3://bucket/nightly/"], "store", run="nightly-41")
    hlomem.fleet.ask("store", "SELECT name, needs FROM modules ORDER BY needs DESC").df()

Needs the extra `hlomem[fleet]`, whose packages are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["ask", "scan"]

_HOME = {"ask": "hlomem.fleet.asking", "scan": "hlomem.fleet.scanning"}

if TYPE_CHECKING:
    from hlomem.fleet.asking import ask
    from hlomem.fleet.scanning import scan


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
