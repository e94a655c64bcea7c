"""A module planned by a compiler of its own process, in the order it has."""

from __future__ import annotations

from typing import Any

import pytest

import hlomem
from hlomem.jax.module_plans import planned_bytes, temporaries_of
from hlomem.jax.plan_only import CompileError
from tests.check.faults import rebuilt
from tests.opt.orders.programs import CPU
from tests.places import GOLDENS

SOLVE = CPU / "g_cholesky_solve"


def test_a_module_is_planned_as_when_it_was_compiled() -> None:
    hlo: Any = pytest.importorskip("jaxlib._hlo", reason="jaxlib is not installed")
    module = hlo.hlo_module_from_text((SOLVE / "module.hlo").read_text())
    planned = planned_bytes("cpu", "cpu", bytes(module.as_serialized_hlo_module_proto()))
    assert planned == temporaries_of(hlomem.load(SOLVE)) > 0


def test_a_dump_without_allocations_has_no_temporaries_to_count() -> None:
    dump = hlomem.load(GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "nested_while")
    assert dump.assignment is not None
    listed = [each.size for each in dump.assignment.allocations if each.is_preallocated_temp]
    assert temporaries_of(dump) == sum(listed) > 0
    with pytest.raises(CompileError, match="no list of its allocations"):
        temporaries_of(rebuilt(dump, assignment=None))
