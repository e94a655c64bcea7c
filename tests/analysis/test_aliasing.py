"""Which values must lie at one place: `hlo/analysis/hlo_alias_analysis.cc`."""

from __future__ import annotations

import pytest

from hlomem.hlo.text.parser import parse
from hlomem.pipeline import start_stages
from tests.analysis.programs import DONATE_SWAP
from tests.analysis.test_dataflow import LOOP


def _buffers(text: str) -> list[set[str]]:
    aliasing = start_stages(parse(text)).aliasing
    return [
        {f"{value.instruction.name}{value.index or ''}" for value in buffer.values}
        for buffer in aliasing.buffers
    ]


def _entry(*lines: str, header: str = "") -> str:
    first = [
        "%a = f32[8]{0} parameter(0)",
        "%i = s32[] parameter(1)",
        "%u = f32[2]{0} parameter(2)",
    ]
    body = "\n".join(f"  {line}" for line in [*first, *lines])
    return f"HloModule m, is_scheduled=true{header}\n\nENTRY %e {{\n{body}\n}}\n"


def test_an_update_lies_where_it_writes() -> None:
    buffers = _buffers(
        _entry(
            "%n = f32[8]{0} negate(%a)",
            "ROOT %d = f32[8]{0} dynamic-update-slice(%n, %u, %i)",
        )
    )
    assert {"n", "d"} in buffers
    assert {"u"} in buffers


@pytest.mark.parametrize("opcode", ["negate", "reverse", "copy"])
def test_what_need_not_share_does_not(opcode: str) -> None:
    """In-place pairs are musts; that an elementwise result may share is decided elsewhere."""
    attribute = ", dimensions={0}" if opcode == "reverse" else ""
    assert {"a"} in _buffers(_entry(f"ROOT %r = f32[8]{{0}} {opcode}(%a){attribute}"))


def test_updates_of_updates_are_one_buffer() -> None:
    buffers = _buffers(
        _entry(
            "%n = f32[8]{0} negate(%a)",
            "%d = f32[8]{0} dynamic-update-slice(%n, %u, %i)",
            "ROOT %r = f32[8]{0} dynamic-update-slice(%d, %u, %i)",
        )
    )
    assert {"n", "d", "r"} in buffers


def test_a_declared_alias_of_a_custom_call_is_a_must() -> None:
    call = 'custom-call(%n), custom_call_target="f"'
    declared = ", output_to_operand_aliasing={{}: (0, {})}"
    lines = ["%n = f32[8]{0} negate(%a)", f"ROOT %c = f32[8]{{0}} {call}"]
    assert {"n", "c"} not in _buffers(_entry(*lines))
    assert {"n", "c"} in _buffers(_entry(lines[0], lines[1] + declared))


def test_an_output_lies_in_the_parameter_it_is_aliased_with() -> None:
    header = ", input_output_alias={ {}: (0, {}, may-alias) }"
    line = "ROOT %r = f32[8]{0} reverse(%a), dimensions={0}"
    assert {"a", "r"} in _buffers(_entry(line, header=header))
    assert {"a", "r"} not in _buffers(_entry(line))


def test_a_loop_is_one_buffer_for_what_it_carries() -> None:
    carried = next(buffer for buffer in _buffers(LOOP) if "next" in buffer)
    assert {"copy", "next"} < carried


@pytest.mark.parametrize("text", [DONATE_SWAP, LOOP])
def test_every_value_is_in_one_buffer_and_ids_count_up(text: str) -> None:
    stages = start_stages(parse(text))
    aliasing = stages.aliasing
    assert [buffer.id for buffer in aliasing.buffers] == list(range(len(aliasing.buffers)))
    members = [value for buffer in aliasing.buffers for value in buffer.values]
    assert len(members) == len(set(members)) == len(stages.dataflow.values)
    assert all(value in aliasing.buffer_of[value].values for value in members)
    for buffer in aliasing.buffers:
        assert [value.id for value in buffer.values] == sorted(value.id for value in buffer.values)


def test_live_out_is_what_the_entry_returns() -> None:
    aliasing = start_stages(parse(DONATE_SWAP)).aliasing
    names = {value.instruction.name for buffer in aliasing.live_out for value in buffer.values}
    assert names == {"tuple", "copy.2", "copy.3", "a.1", "b.1"}
