"""Short names for users: `train_step`, `down/reduce_sum`, `gpt.py:29`; names of two dumps."""

from __future__ import annotations

import re

from hlomem.dump.file_names import program_name
from hlomem.report.data.lines import bare_op_name

_SHOWN_SCOPES = 2


def short_program(dump_name: str) -> str:
    """The function of a dump, or the last part of its path."""
    name = program_name(dump_name)
    return name.rstrip("/\\").replace("\\", "/").rpartition("/")[2] or name


def short_operation(op_name: str) -> str:
    return "/".join(bare_op_name(op_name).split("/")[-_SHOWN_SCOPES:])


def short_line(source: str) -> str:
    """`file:line` without folders."""
    return source.replace("\\", "/").rpartition("/")[2]


_SEPARATOR = re.compile(r"[/\\]+")


def distinct_names(one: str, other: str) -> tuple[str, str]:
    """The differing parts of two paths; equal paths whole: `gpt`, `gpt_donate`."""
    first, second = (_SEPARATOR.split(path.rstrip("/\\")) for path in (one, other))
    if first == second:
        return one, other
    shortest = min(len(first), len(second))
    start = next((n for n in range(shortest) if first[n] != second[n]), shortest)
    start = min(start, shortest - 1)  # one path may be a prefix of the other
    end = next(
        n for n in range(shortest) if n == shortest - start - 1 or first[-1 - n] != second[-1 - n]
    )
    names = ["/".join(parts[start : len(parts) - end]) for parts in (first, second)]
    return names[0], names[1]
