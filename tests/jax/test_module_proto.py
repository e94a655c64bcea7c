"""Schedules in modules as bytes: what is not a schedule stays as it is."""

from __future__ import annotations

import pytest

from hlomem.jax.module_proto import with_schedule

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
