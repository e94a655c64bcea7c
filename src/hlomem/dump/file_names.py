"""XLA's files about a program's memory (`FilenameFor` of xla/service/dump.cc), and its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from hlomem.base.patterns import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["combined", "assignment", "values", "live-range", "report"]


class FileName(NamedTuple):
    suffix: str
    """After the module's name."""
    short: str
    """Its name in a folder per module."""


_MAIN_FILE = FileName("-buffer-assignment.txt", "buffer-assignment.txt")
FILE_NAMES: Mapping[Kind, FileName] = {
    "combined": _MAIN_FILE,
    "assignment": _MAIN_FILE,
    "values": FileName("-buffer-assignment-values.txt", "values.txt"),
    "live-range": FileName("-live-range.txt", "live-range.txt"),
    "report": FileName("-memory-usage-report.txt", "memory-usage-report.txt"),
}
"""In the order XLA writes them."""

CODEGEN_NAMES = (
    ("after_codegen.txt", "tpu_comp_env.txt", "target_arguments.txt"),
    ("thunk_sequence.txt", "", "gpu_target_config.pbtxt"),
)
"""Files about generated code, its flags and its chip, of TPU and GPU; short names are the same."""
_OPTIMIZED = lazy_pattern(r"(?:sm_[\d.]{1,8}[a-z]?_gpu_)?after_optimizations$")


def codegen_names(stem: str) -> tuple[tuple[str, ...], ...]:
    """The names of those files for `module_0000.jit_f.cl_1.after_optimizations`."""
    module = _OPTIMIZED.sub("", stem)
    return tuple(tuple(name and module + name for name in names) for names in CODEGEN_NAMES)


_XLA_FILE = lazy_pattern(
    r"(?:^|[/\\])module_\d+\.(?P<program>.+?)(?:\.cl_\d+)?"
    r"\.(?:sm_[\d.]+[a-z]?_)?\w*?after_optimizations(?:[-_.][\w.-]*)?$"
)
_TRANSFORMED = lazy_pattern(r"^(?:jit|pjit|pmap)_(?=.)")


def program_name(name: str) -> str:
    """`train_step` of `module_0000.jit_train_step.….txt`; other names stay unchanged."""
    found = _XLA_FILE.search(name)
    return name if found is None else author_name(found["program"])


def author_name(module_name: str) -> str:
    return _TRANSFORMED.sub("", module_name, count=1)
