"""The name of a program: `train_step`, where XLA's file says module_0000.jit_train_step.….

In: the name of a dump, a path or what its files begin with. Out: the name its author gave it.
XLA composes file names in xla/service/dump.cc (`FilenameFor`): the number of the module, the name
JAX gave it, on TPU a change list, and the stage.
"""

from __future__ import annotations

from hlomem.base.patterns import lazy_pattern

_XLA_FILE = lazy_pattern(
    r"(?:^|[/\\])module_\d+\.(?P<program>.+?)(?:\.cl_\d+)?"
    r"\.(?:sm_[\d.]+[a-z]?_)?\w*?after_optimizations(?:[-_.][\w.-]*)?$"
)
_TRANSFORMED = lazy_pattern(r"^(?:jit|pjit|pmap)_(?=.)")


def program_name(name: str) -> str:
    """The program's own name; a name that is not XLA's stays as it is."""
    found = _XLA_FILE.search(name)
    return name if found is None else author_name(found["program"])


def author_name(module_name: str) -> str:
    """A module's name without what JAX puts before the name its author gave it."""
    return _TRANSFORMED.sub("", module_name, count=1)
