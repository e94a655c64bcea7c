"""Short names: what a user calls what XLA names at length.

In: `module_0000.jit_train_step.cl_1003875606.after_optimizations`, an operation's name with all its
scopes, a source file with all its folders. Out: `train_step`, `down/reduce_sum`, `gpt.py:29`.
"""

from __future__ import annotations

import re

from hlomem.report.data.lines import bare_op_name

_DUMP = re.compile(
    r"module_\d+\.(?:jit_)?(?P<function>.+?)(?:\.cl_\d+)?(?:\.\w*)?\.?"
    r"(?:sm_[\d.]+_gpu_|[a-z]+_)?after_optimizations"
)
_SHOWN_SCOPES = 2


def program_name(dump_name: str) -> str:
    """The function a dump is of, or the last part of its path where it does not say."""
    last = dump_name.rstrip("/\\").replace("\\", "/").rpartition("/")[2] or dump_name
    found = _DUMP.match(last)
    return found["function"] if found else last


def short_operation(op_name: str) -> str:
    """An operation with the innermost scope it is in."""
    return "/".join(bare_op_name(op_name).split("/")[-_SHOWN_SCOPES:])


def short_line(source: str) -> str:
    """`file:line` without folders."""
    return source.replace("\\", "/").rpartition("/")[2]
