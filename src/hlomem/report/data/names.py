"""Short names: what a user calls what XLA names at length.

In: `module_0000.jit_train_step.cl_1003875606.after_optimizations`, an operation's name with all its
scopes, a source file with all its folders. Out: `train_step`, `down/reduce_sum`, `gpt.py:29`.
"""

from __future__ import annotations

from hlomem.dump.program_name import program_name
from hlomem.report.data.lines import bare_op_name

_SHOWN_SCOPES = 2


def short_program(dump_name: str) -> str:
    """The function a dump is of, or the last part of its path where it does not say."""
    name = program_name(dump_name)
    return name.rstrip("/\\").replace("\\", "/").rpartition("/")[2] or name


def short_operation(op_name: str) -> str:
    """An operation with the innermost scope it is in."""
    return "/".join(bare_op_name(op_name).split("/")[-_SHOWN_SCOPES:])


def short_line(source: str) -> str:
    """`file:line` without folders."""
    return source.replace("\\", "/").rpartition("/")[2]
