"""Attributes, shardings, shapes and literals of protos read as XLA prints them."""

from __future__ import annotations

import re

import pytest

from hlomem import hlo
from hlomem.base.errors import InputError
from hlomem.hlo.text.printer import format_module
from hlomem.proto.module import read_module
from hlomem.proto.schema import message_types
from tests.places import GOLDENS

TEXTS = GOLDENS / "proto_texts"
UNWRITTEN = re.compile(
    r"^(  (?:ROOT )?%\S+ = (?:s2|s4|u4|f8\w+|c64|c128)\[\d*\]\S* constant\().*\)$", re.MULTILINE
)
"""Constants of types whose elements are left out."""


@pytest.mark.parametrize("name", ["attributes", "literals"])
def test_a_program_with_every_attribute_and_literal_prints_as_xla_prints_it(name: str) -> None:
    text = (TEXTS / f"{name}.hlo").read_text()
    module = read_module((TEXTS / f"{name}.pb").read_bytes())
    printed = format_module(module, hlo.parse(text).style)
    assert printed.strip() == UNWRITTEN.sub(r"\1{...})", text).strip()


@pytest.mark.parametrize("name", ["attributes", "literals"])
def test_a_body_answers_alike_before_and_after_it_is_read(name: str) -> None:
    data = (TEXTS / f"{name}.pb").read_bytes()
    module, read = read_module(data), read_module(data)
    read.open_all()
    for before, after in zip(module.computations, read.computations, strict=True):
        assert before.name == after.name
        assert before.outline() == after.outline()
        assert before.first_parameter_name == after.first_parameter_name
        assert _named_calls(before) == _named_calls(after)
        assert before.body_text is None
        assert after.body_text is None


def _named_calls(computation: hlo.HloComputation) -> list[object]:
    return [
        (call.opcode, [callee.name for callee in call.called_computations], call.attribute_text)
        for call in computation.calls()
    ]


def _program(**fields: object) -> bytes:
    """A parameter that is returned, with more fields."""
    shape = {"element_type": 11, "dimensions": [2], "layout": {"minor_to_major": [0]}}
    instruction = {"name": "x", "opcode": "parameter", "shape": shape, "id": 1, **fields}
    computation = {"name": "main", "id": 1, "root_id": 1, "instructions": [instruction]}
    module = message_types()["Module"](name="m", entry_computation_id=1, computations=[computation])
    encoded: bytes = module.SerializeToString()
    return encoded


@pytest.mark.parametrize(
    ("fields", "name", "text"),
    [
        ({"backend_config": b"\xff"}, "backend_config", r'"\377"'),
        ({"backend_config_payload": {"value": b'{"a":1}'}}, "backend_config", '{"a":1}'),
        ({"backend_config": b'{"a":"}'}, "backend_config", r'"{\"a\":\"}"'),
        ({"sharding": {"type": 1}}, "sharding", "{maximal device=0}"),
        ({"sharding": {"type": 9}}, "sharding", "{unknown_9}"),
        ({"sharding": {"metadata": [{}]}}, "sharding", "{replicated metadata={}}"),
        (
            {"sharding": {"type": 3, "tile_assignment_dimensions": [1], "last_tile_dims": [8]}},
            "sharding",
            "{devices=[1] last_tile_dims={unknown_8}}",
        ),
    ],
)
def test_what_the_newest_xla_no_longer_writes_is_read_all_the_same(
    fields: dict[str, object], name: str, text: str
) -> None:
    assert read_module(_program(**fields)).entry.root.attributes == {name: text}


def test_metadata_that_says_nothing_is_left_out() -> None:
    module = read_module(_program(metadata={"source_line": 3}, result_accuracy={}))
    assert module.entry.root.attributes == {}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"replica_groups": [{"replica_ids": [0, 1]}]}, "{{0,1}}"),
        ({"collective_device_list": {"replica_groups": [{"replica_ids": [2]}]}}, "{{2}}"),
        (
            {
                "collective_device_list": {
                    "iota_replica_group_list": {
                        "num_replica_groups": 2,
                        "num_devices_per_group": 1,
                        "iota_reshape_dims": [2],
                        "iota_transpose_perm": [0],
                    }
                }
            },
            "[2,1]<=[2]",
        ),
    ],
)
def test_groups_of_devices_are_read_in_each_form_they_had(
    fields: dict[str, object], text: str
) -> None:
    shape = {"element_type": 11, "dimensions": [2], "layout": {"minor_to_major": [0]}}
    parameter = {"name": "x", "opcode": "parameter", "shape": shape, "id": 1}
    gathered = {"name": "y", "opcode": "all-to-all", "shape": shape, "id": 2, "operand_ids": [1]}
    computation = {"name": "main", "id": 1, "root_id": 2}
    computation["instructions"] = [parameter, {**gathered, **fields}]
    module = message_types()["Module"](name="m", entry_computation_id=1, computations=[computation])
    root = read_module(module.SerializeToString()).entry.root
    assert root.attributes["replica_groups"] == text


def test_an_attribute_that_would_be_read_as_another_is_refused() -> None:
    module = read_module(_program(backend_config=b"{", opcode="custom-call", fusion_kind=""))
    with pytest.raises(InputError, match="payload 3 of 0"):
        _ = read_module(_program(backend_config_payload={"id": 3})).entry.root.attributes
    assert module.entry.root.attributes["backend_config"] == '"{"'
