"""A placeholder is compiled into the module it stands for, in the order that has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import hlomem
from hlomem import hlo
from hlomem.base.errors import CommandError, HlomemError
from hlomem.jax.compile.parent import CompileError
from hlomem.jax.compile.placeholder import interface_of, planned_bytes, program, temporaries_of
from hlomem.proto.edit import name_of, write_orders
from hlomem.proto.module import read_module
from tests.check.faults import rebuilt
from tests.opt.orders.programs import CPU
from tests.places import GOLDENS

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make jax` runs these tests")
extension: Any = pytest.importorskip("jax.extend.xla", reason="this jax has no hook for passes")
jaxlib: Any = pytest.importorskip("jaxlib._hlo", reason="jaxlib is not installed")
STAGE = extension.PipelineStage.POST_SCHEDULER


def _scheduled() -> bytes:
    """A module as the pass gets it."""
    seen: list[bytes] = []

    def keep(proto: bytes) -> None:
        seen.append(bytes(proto))

    extension.register_hlo_module_transformation(keep, name="keep", stage=STAGE, platforms="cpu")
    try:
        shape = jax.ShapeDtypeStruct((8, 8), "float32")
        jax.jit(lambda x, y: (jax.lax.cumsum(x), jax.lax.cumsum(y, reverse=True))).lower(
            shape, shape
        ).compile()
    finally:
        extension.clear_hlo_module_transformation("keep", stage=STAGE, platforms="cpu")
    return seen[-1]


def test_the_compiler_goes_on_with_the_module_in_its_order(tmp_path: Path) -> None:
    proto = _scheduled()
    module = read_module(proto)
    assert name_of(proto) == module.name
    order = module.entry.instructions
    places = [order.index(part) for part in module.entry.root.operands]
    turned = order.copy()
    turned[places[0]], turned[places[1]] = order[places[1]], order[places[0]]
    file = tmp_path / "module.pb"
    file.write_bytes(write_orders(module, {module.entry: turned}))
    jitted, arguments = program(jax.local_devices(backend="cpu"), str(file), "cpu")
    try:
        compiled = jitted.lower(*arguments).compile()
    finally:
        extension.clear_hlo_module_transformation(
            "hlomem-placeholder", stage=STAGE, platforms="cpu"
        )
    entry = compiled.as_text().rpartition("\nENTRY ")[2]
    names = list(re.findall(r"^\s+(?:ROOT )?%?([\w.-]+) = ", entry, re.MULTILINE))
    wanted = [part.name for part in turned]
    assert [name for name in names if name in wanted] == wanted


def test_what_no_array_of_jax_can_be_is_refused() -> None:
    text = """HloModule m, is_scheduled=true

ENTRY %e {
  ROOT %p = token[] parameter(0)
}
"""
    with pytest.raises(CommandError, match="nothing can stand in"):
        interface_of(hlo.parse(text))


def test_more_devices_than_the_target_has_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "module.pb"
    file.write_bytes(_scheduled())
    with pytest.raises(HlomemError, match="1 devices, the target of 0"):
        program([], str(file), "cpu")


SOLVE = CPU / "g_cholesky_solve"


def test_a_module_is_planned_as_when_it_was_compiled() -> None:
    module = jaxlib.hlo_module_from_text((SOLVE / "module.hlo").read_text())
    planned = planned_bytes("cpu", "cpu", bytes(module.as_serialized_hlo_module_proto()))
    assert planned == temporaries_of(hlomem.load(SOLVE)) > 0


def test_a_dump_without_allocations_has_no_temporaries_to_count() -> None:
    dump = hlomem.load(GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "nested_while")
    assert dump.assignment is not None
    listed = [each.size for each in dump.assignment.allocations if each.is_preallocated_temp]
    assert temporaries_of(dump) == sum(listed) > 0
    with pytest.raises(CompileError, match="no list of its allocations"):
        temporaries_of(rebuilt(dump, assignment=None))
