"""Of several programs the one an error is about."""

from __future__ import annotations

from typing import NamedTuple

from hlomem.report.oom.log import Failure
from hlomem.report.oom.matching import match_failure


class Program(NamedTuple):
    """A program as far as an error can tell it from others."""

    module_name: str
    size: int
    allocation_sizes: frozenset[int] = frozenset()


def _failure(needed: int | None = None, module: str | None = None) -> Failure:
    return Failure(platform="gpu", moment="run", needed=needed, module=module, line=1)


def test_a_named_program_is_taken_and_of_one_name_the_size_decides() -> None:
    small, large = Program("jit_step", 10), Program("jit_step", 1000)
    others = [Program("jit_init", 990), small, large]
    found = match_failure(_failure(980, "jit_step"), others)
    assert found is not None
    assert found[0] is large
    assert found[1] == ("named by the error", True)
    last = match_failure(_failure(None, "jit_step"), [large, small])
    assert last is not None
    assert last[0] is small
    assert match_failure(_failure(990, "jit_eval"), others) is None


def test_else_the_allocation_of_just_these_bytes_decides() -> None:
    step = Program("jit_step", 5000, frozenset({4096, 904}))
    init = Program("jit_init", 9000, frozenset({9000}))
    found = match_failure(_failure(4096), [init, step])
    assert found is not None
    assert found[0] is step
    assert found[1] == ("its allocation is the 4096 bytes requested", True)
    assert match_failure(_failure(5000), [init, step]) is None
    assert match_failure(_failure(), [init, step]) is None


def test_a_size_that_was_rounded_in_print_finds_its_program() -> None:
    step = Program("jit_step", 5 << 30, frozenset({1610000000}))
    found = match_failure(_failure(int(1.5 * 2**30)), [step])
    assert found is not None
    assert "about the 1.50 GiB requested" in found[1].reason


def test_where_several_fit_the_largest_is_taken_and_doubt_is_said() -> None:
    programs = [
        Program("jit_a", 300, frozenset({64})),
        Program("jit_b", 500, frozenset({64})),
        Program("jit_c", 400, frozenset({64})),
    ]
    found = match_failure(_failure(64), programs)
    assert found is not None
    program, match = found
    assert program.module_name == "jit_b"
    assert not match.is_sure
    assert match.reason.endswith("; 2 other programs would match, too")
