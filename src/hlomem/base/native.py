"""The choice between native kernels (`_name.c`) and the equivalent Python next to them."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

IS_WANTED = not os.environ.get("HLOMEM_PURE")
"""HLOMEM_PURE=1 in the environment disables native kernels."""


def kernel(module: str, function: str) -> Any:
    """A function of a native kernel; None if the kernel was not built or is disabled."""
    if not IS_WANTED:
        return None
    try:
        return getattr(import_module(module), function)
    except ImportError:  # installed without a compiler
        return None


def built_kernels() -> list[str]:
    """The modules of all native kernels that were built and can be loaded."""
    from pathlib import Path  # noqa: PLC0415 - start-up

    root = Path(__file__).parent.parent
    found = []
    for library in sorted(root.rglob("_*.abi3.so")):
        name = library.name.partition(".")[0]
        module = ".".join((root.name, *library.relative_to(root).parent.parts, name))
        try:
            import_module(module)
        except ImportError:  # of another machine
            continue
        found.append(module)
    return found
