"""XLA compiles and runs the edits of `tests/opt/edits`: equal results, in the memory they name."""

from __future__ import annotations

from typing import Any

import pytest

from hlomem.proto.edit import write_module
from hlomem.proto.module import read_module
from tests.opt.fixtures import Fixture, edit, iter_fixtures

jax: Any = pytest.importorskip("jax", reason="jax is not installed")
pytest.importorskip("jax.extend.xla", reason="this jax has no hook for passes")
np: Any = pytest.importorskip("numpy")
carried: Any = pytest.importorskip("tools.programs.carried")

FIXTURES = [one for one in iter_fixtures() if one.may_run]


def _run(compiled: Any, arguments: list[Any]) -> list[bytes]:
    results = jax.tree.leaves(compiled(*map(jax.numpy.asarray, arguments)))
    return [np.asarray(result).tobytes() for result in results]


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.path.stem)
def test_xla_gives_equal_results_in_the_memory_that_is_named(fixture: Fixture) -> None:
    program = carried.carry(fixture.program)
    plain = program.compile()
    edited = program.compile(lambda proto: write_module(edit(fixture, read_module(proto)).module))
    random = np.random.RandomState(0)
    arguments = [random.randn(*one.shape).astype(one.dtype) for one in program.arguments]
    assert _run(edited, arguments) == _run(plain, arguments)
    sizes = [one.memory_analysis().temp_size_in_bytes for one in (plain, edited)]
    assert tuple(sizes) == fixture.temporaries
