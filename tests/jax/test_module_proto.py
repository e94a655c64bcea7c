"""Schedules in modules as bytes: what is not a schedule stays as it is."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.jax.module_proto import with_edit, with_schedule, with_text
from hlomem.opt.checks.edit import find_edit_problems
from hlomem.opt.remat.edit import Clone, Edit, apply_edit
from hlomem.proto.module import read_module

pytest.importorskip("google.protobuf", reason="protobuf is not installed")


def _message(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def _number(number: int, value: int) -> bytes:
    tag = number << 3
    head = bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])
    return head + bytes([value])


INSTRUCTIONS = b"".join(
    _message(2, _message(1, name) + _number(35, number) + _message(3, b"shape"))
    for name, number in ((b"a", 11), (b"b", 12), (b"c", 13))
)
COMPUTATION = _message(3, _message(1, b"main") + INSTRUCTIONS + _number(5, 7))
UNKNOWN = _message(1, b"module") + _message(9, b"whatever this is")


def _schedule(*numbers: int) -> bytes:
    ids = b"".join(_number(1, number) for number in numbers)
    return _message(7, _message(1, _number(1, 7) + _message(2, ids)))


def _fields(message: bytes) -> list[bytes]:
    """The fields of a message, in an order of their own."""
    found, place = [], 0
    while place < len(message):
        end = place + 2 + message[place + 1]
        found.append(message[place:end])
        place = end
    return sorted(found)


def test_the_schedule_is_another_and_the_rest_is_kept() -> None:
    proto = UNKNOWN + COMPUTATION + _schedule(11, 12, 13)
    changed = with_schedule(proto, {"main": ["a", "c", "b"]})
    assert sum(map(len, _fields(changed))) == len(proto)
    assert _schedule(11, 13, 12) in changed
    assert all(piece in changed for piece in (b"whatever this is", b"module", b"shape"))
    assert with_schedule(changed, {"main": ["a", "b", "c"]}).count(_schedule(11, 12, 13)) == 1


@pytest.mark.parametrize("order", [["a", "b"], ["a", "b", "b"]])
def test_an_order_of_other_instructions_is_refused(order: list[str]) -> None:
    with pytest.raises(ValueError, match="not one of its instructions"):
        with_schedule(COMPUTATION + _schedule(11, 12, 13), {"main": order})


def test_unknown_names_are_refused() -> None:
    proto = COMPUTATION + _schedule(11, 12, 13)
    with pytest.raises(KeyError):
        with_schedule(proto, {"other": ["a", "b", "c"]})
    with pytest.raises(KeyError):
        with_schedule(proto, {"main": ["a", "b", "d"]})


EDITED = """\
HloModule m, is_scheduled=true

%inner (x.1: f32[64]) -> f32[64] {
  %x.1 = f32[64]{0} parameter(0)
  ROOT %n.1 = f32[64]{0} negate(f32[64]{0} %x.1)
}

%body (x: f32[64]) -> f32[64] {
  %x = f32[64]{0} parameter(0)
  ROOT %f.1 = f32[64]{0} fusion(f32[64]{0} %x), kind=kLoop, calls=%inner
}

ENTRY %main (p: f32[64]) -> (f32[64], f32[64]) {
  %p = f32[64]{0} parameter(0)
  %a = f32[64]{0} exponential(f32[64]{0} %p)
  %f = f32[64]{0} fusion(f32[64]{0} %a), kind=kLoop, calls=%body
  %b = f32[64]{0} multiply(f32[64]{0} %f, f32[64]{0} %p)
  %d = f32[64]{0} multiply(f32[64]{0} %f, f32[64]{0} %b)
  ROOT %t = (f32[64]{0}, f32[64]{0}) tuple(f32[64]{0} %b, f32[64]{0} %d)
}
"""
CLONES = (Clone("a.remat", "a", ("p",)), Clone("f.remat", "f", ("a.remat",)))
ORDER = ("p", "a", "f", "b", "a.remat", "f.remat", "d", "t")
EDIT = Edit("main", CLONES, {"d": ("f.remat", "b")}, {"main": ORDER})


def _made_by_xla() -> bytes:
    jaxlib_hlo = pytest.importorskip("jaxlib._hlo", reason="jaxlib is not installed")
    return bytes(jaxlib_hlo.hlo_module_from_text(EDITED).as_serialized_hlo_module_proto())


def test_values_computed_again_stand_in_the_message_as_in_the_edited_program() -> None:
    given = _made_by_xla()
    edited, expected = read_module(with_edit(given, EDIT)), apply_edit(hlo.parse(EDITED), EDIT)
    assert not find_edit_problems(read_module(given), edited)
    assert [instruction.name for instruction in edited.entry.instructions] == list(ORDER)
    assert [
        (instruction.name, [operand.name for operand in instruction.operands])
        for instruction in edited.entry.instructions
    ] == [
        (instruction.name, [operand.name for operand in instruction.operands])
        for instruction in expected.entry.instructions
    ]
    names = [computation.name for computation in edited.computations]
    assert len(names) == len(set(names)) == 5  # both bodies were copied, the inner one too


def test_a_clone_under_a_name_that_is_taken_is_refused() -> None:
    taken = Edit("main", (Clone("b", "a", ("p",)),), {}, {"main": ORDER})
    with pytest.raises(ValueError, match="the name b is taken"):
        with_edit(_made_by_xla(), taken)


ELIDED = """HloModule m, is_scheduled=true

ENTRY %main (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  %c = f32[2]{0} constant({3, 5})
  ROOT %r = f32[2]{0} add(%p, %c)
}
"""


def test_a_constant_without_its_numbers_takes_those_of_its_name_or_of_its_original() -> None:
    jaxlib = pytest.importorskip("jaxlib._hlo", reason="jaxlib is not installed")
    proto = bytes(jaxlib.hlo_module_from_text(ELIDED).as_serialized_hlo_module_proto())
    clone = "  %c.remat = f32[2]{0} constant({...})\n  %s = f32[2]{0} add(%p, %c.remat)\n"
    text = ELIDED.replace("{3, 5}", "{...}").replace("  ROOT", f"{clone}  ROOT")
    module = read_module(with_text(proto, text.replace("add(%p, %c)", "add(%s, %c)")))
    assert [part.payload for part in module.entry.instructions if part.opcode == "constant"] == [
        "{3, 5}"
    ] * 2
    with pytest.raises(ValueError, match=r"the numbers of unknown are not known"):
        with_text(proto, text.replace("%c.remat", "%unknown"))
