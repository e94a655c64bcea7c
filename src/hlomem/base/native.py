"""The choice between native kernels and the Python that does the same.

A kernel is a file `_name.c` beside that Python. Which of the two runs changes how long things take
and nothing else; tests hold them to each other.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

IS_WANTED = not os.environ.get("HLOMEM_PURE")
"""Native kernels run where they were built, unless the environment says HLOMEM_PURE=1."""


def kernel(module: str, function: str) -> Any:
    """A function of a native kernel; None where it was not built or is not wanted."""
    if not IS_WANTED:
        return None
    try:
        return getattr(import_module(module), function)
    except ImportError:  # as in every installation without a compiler
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
