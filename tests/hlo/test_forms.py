"""Every form of text that XLA accepts is read, printed, and read again as the same module."""

from __future__ import annotations

import pytest

from hlomem.hlo import HloModule, format_module, parse
from tests.hlo.forms import FORMS


def content(module: HloModule) -> list[object]:
    """What a module says, computation by computation."""
    return [
        (
            (computation.name, computation.is_entry, computation.root.name),
            [
                (each.name, each.opcode, each.shape, [operand.name for operand in each.operands])
                for each in computation.instructions
            ],
        )
        for computation in module.computations
    ]


@pytest.mark.parametrize("name", FORMS)
def test_form_is_read_and_printed(name: str) -> None:
    module = parse(FORMS[name], name, lazy=False)
    # Short forms of async operations would hide the names of what they wrap.
    printed = format_module(module, module.style._replace(async_sugar=False))
    again = parse(printed, name, lazy=False)
    assert content(again) == content(module)
    assert format_module(again) == printed


def test_a_module_without_a_header_is_named_after_its_entry() -> None:
    assert parse(FORMS["no header, ENTRY"]).name == "module_e"
    assert parse(FORMS["no header, two"]).computation_by_name.keys() == {"add", "e"}


def test_blanks_deep_inside_a_value_are_kept_when_the_layout_changes() -> None:
    root = parse(FORMS["composite call"]).entry.root
    assert root.frontend_attributes["composite.attributes"] == "{n = 1 : i32}"


def test_an_equal_sign_of_an_iota_group_defines_nothing() -> None:
    root = parse(FORMS["iota groups"]).entry.root
    assert root.attributes["replica_groups"] == "[2,2]<=[2,2]T(1,0)"


def test_callees_are_found_behind_any_blanks() -> None:
    root = parse(FORMS["while"].replace(", body", ",   body")).entry.root
    assert [each.name for each in root.called_computations] == ["neg", "c"]


def test_a_number_of_many_digits_in_a_config_leaves_it_a_string() -> None:
    config = f'{{"a":{"9" * 5000}}}'
    text = FORMS["json config"].replace('{"a":{"b":["c"]},"d":""}', config)
    assert parse(text, lazy=False).entry.root.backend_config == config
